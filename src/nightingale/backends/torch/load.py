"""From files to modules: each part loaded strictly, and computed as the plan wants it."""

from __future__ import annotations

import ctypes
from dataclasses import asdict
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from nightingale.backends.base import ModelFiles
from nightingale.backends.torch.flow import model as flow
from nightingale.backends.torch.flow.bf16 import Bf16Estimator
from nightingale.backends.torch.flow.fast import FastEstimator
from nightingale.backends.torch.flow.fast_encoder import FastEncoder
from nightingale.backends.torch.t3 import model as t3
from nightingale.backends.torch.t3.quantized import empty_quantized, quantize
from nightingale.backends.torch.vocoder import model as vocoder
from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.core import Plan
from nightingale.errors import LayoutError
from nightingale.families import Decoder
from nightingale.nn import fused, native
from nightingale.nn.device import Placement
from nightingale.nn.meta_init import meta_init
from nightingale.nn.packing import Bits
from nightingale.weights import packed
from nightingale.weights.config import sized
from nightingale.weights.load import load_into, load_tensors, read_config, read_tensors

_N_BITS: dict[str, Bits] = {"int8": 8, "int4": 4}
_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
M = TypeVar("M", bound=nn.Module)


def load_t3(files: ModelFiles, plan: Plan, placement: Placement) -> t3.T3:
    """Packed weights that were kept are read as they are; else they are packed now."""
    if plan.t3 not in _N_BITS:
        return place_t3(_plain_t3(files), plan, placement)
    kept = packed.place(files.t3, plan.t3, files.home)
    if not packed.is_kept(kept, files.home):
        return place_t3(_plain_t3(files), plan, placement)
    with meta_init():
        module = empty_quantized(t3.T3(_t3_config(files)), _N_BITS[plan.t3])
    load_into(module, kept)
    _upcast(module, module.state_dict())
    return module.eval().requires_grad_(False)


def place_t3(plain: t3.T3, plan: Plan, placement: Placement) -> t3.T3:
    """A T3 on the host -> the same as a resolved plan wants it, where it is computed."""
    if plan.t3 in _N_BITS:
        return pack(plain, plan)
    return place(plain, placement, _DTYPES[plan.t3])


def keep_packed_t3(files: ModelFiles) -> Path:
    """Pack the weights of T3 once, so that the plan starts quickly from then on."""
    recipe = {"t3": files.plan.t3, "config": {"t3": asdict(_t3_config(files))}}
    module = pack(_plain_t3(files), files.plan)
    target = packed.place(files.t3, files.plan.t3, files.home)
    packed.keep(_to_fp16(module.state_dict()), files.t3, recipe, target)
    return target


def pack(plain: t3.T3, plan: Plan) -> t3.T3:
    """The same T3 with its layers packed as the plan wants them, in memory."""
    module = quantize(plain, _N_BITS[plan.t3])
    _upcast(module, _to_fp16(module.state_dict()))  # as if it had been kept and found again
    return module.eval().requires_grad_(False)


def _plain_t3(files: ModelFiles) -> t3.T3:
    with meta_init():
        module = t3.T3(_t3_config(files))
    load_into(module, files.t3, dead=t3.DEAD_TENSORS)
    return module


def _t3_config(files: ModelFiles) -> t3.T3Config:
    return sized(t3.CONFIGS[files.family], read_config(files.t3).get("t3"))


def _upcast(module: t3.T3, tensors: dict[str, Tensor]) -> None:
    """What was not packed is computed in 32 bits; scales are bfloat16 and stay so."""
    wide = {name: t.float() for name, t in tensors.items() if t.dtype == torch.float16}
    module.load_state_dict(wide, strict=False, assign=True)


def _to_fp16(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What was not packed takes 16 bits on disk; what was packed is bytes and bfloat16."""
    kept = (torch.uint8, torch.bfloat16)
    return {name: t if t.dtype in kept else t.half() for name, t in tensors.items()}


def load_flow(decoder: Decoder, file: Path, placement: Placement) -> flow.Flow:
    with meta_init():
        module = flow.Flow(sized(flow.CONFIGS[decoder], read_config(file).get("flow")))
    if module.config.meanflow != (decoder == "meanflow"):
        raise LayoutError(f"{file} does not hold the {decoder} decoder, but the other one")
    load_into(module, file, prefix="flow.", dead=flow.DEAD_TENSORS)
    return place(module, placement)


def load_vocoder(file: Path, placement: Placement) -> vocoder.Vocoder:
    with meta_init():
        config = sized(vocoder.VocoderConfig(), read_config(file).get("mel2wav"))
        module = vocoder.Vocoder(config)
    tensors = vocoder.fold_weight_norm(read_tensors(file, prefix="mel2wav."))
    load_tensors(module, tensors, file)
    return place(module, placement)


def accelerate_flow(module: flow.Flow, placement: Placement, plan: Plan) -> flow.Flow:
    """The same flow as the plan wants it computed, where this device can."""
    library = _fused_library(plan.flow, placement)
    if library is not None and module.config.estimator.d_head in fused.D_HEADS:
        module.decoder["estimator"] = FastEstimator(module.estimator, library)
        module.encoder = FastEncoder(module.encoder, library)  # type: ignore[assignment]
    elif plan.flow == "bf16" and placement.has_bf16:
        module.decoder["estimator"] = Bf16Estimator(module.estimator)
    return module


def accelerate_vocoder(
    module: vocoder.Vocoder, placement: Placement, plan: Plan
) -> vocoder.Vocoder:
    """Likewise."""
    library = _fused_library(plan.vocoder, placement)
    return module if library is None else FastVocoder(module, library)


def _fused_library(precision: str, placement: Placement) -> ctypes.CDLL | None:
    """What computes flow or vocoder in this precision on the host."""
    if not placement.is_host:
        return None
    return {"bf16": native.amx, "int8": native.int8}.get(precision, lambda: None)()


def place(module: M, placement: Placement, dtype: torch.dtype | None = None) -> M:
    """Where it is computed; in the placement's precision unless another is given."""
    return module.eval().requires_grad_(False).to(placement.device, dtype or placement.dtype)
