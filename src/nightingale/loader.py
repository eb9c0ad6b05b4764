"""From files to a model that can speak: which file becomes which part, each loaded strictly.

Sizes are those of the released family, unless a file's header brings its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_type_hints

import torch
from torch import Tensor, nn

from nightingale.audio.watermark import Watermarker
from nightingale.core import Plan, Voice
from nightingale.device import HOST, Placement, choose
from nightingale.errors import LayoutError, NotPulledError, OptionError, WeightsError
from nightingale.flow import model as flow
from nightingale.flow.fast import FastEstimator
from nightingale.flow.fast_encoder import FastEncoder
from nightingale.nn import amx
from nightingale.nn.meta_init import meta_init
from nightingale.nn.packing import Bits
from nightingale.t3 import model as t3
from nightingale.t3.quantized import empty_quantized, quantize
from nightingale.text.tokenizer import (
    EnglishTokenizer,
    FledglingTokenizer,
    Gpt2Tokenizer,
    MultilingualTokenizer,
    TextTokenizer,
)
from nightingale.vocoder import model as vocoder
from nightingale.vocoder.fast import FastVocoder
from nightingale.voice import speaker_encoder, speech_tokenizer, xvector
from nightingale.voice.clone import Encoders
from nightingale.voice.library import from_release
from nightingale.weights import catalog, packed
from nightingale.weights.catalog import Model, Role
from nightingale.weights.folder import find_in
from nightingale.weights.load import load_into, load_tensors, read_config, read_tensors
from nightingale.weights.manifest import locate

Decoder = Literal["standard", "meanflow"]
Files = dict[Role, Path]
REFERENCE = Plan()
_N_BITS: dict[str, Bits] = {"int8": 8, "int4": 4}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Components:
    """Everything that speaking needs; what cloning needs stays on disk until then."""

    model: Model
    files: Files
    placement: Placement
    decoder: Decoder
    plan: Plan
    tokenizer: TextTokenizer
    t3: t3.T3
    flow: flow.Flow
    vocoder: vocoder.Vocoder
    voice: Voice  # the model's own
    watermarker: Watermarker | None


def load_components(
    name: str | Path | None,
    home: Path,
    device: str = "auto",
    decoder: str | None = None,
    watermark: bool = True,
    plan: Plan = REFERENCE,
) -> Components:
    """Load a pulled model by its name, a folder of released files, or the best that is here."""
    placement = choose(device)
    check_plan(plan, placement)
    model, files = _find(name, home)
    chosen = pick_decoder(decoder, model)
    if chosen != _own_decoder(model):
        files = {**files, "s3gen": _other_decoder(chosen, model, files["s3gen"], name, home)}
    return Components(
        model=model,
        files=files,
        placement=placement,
        decoder=chosen,
        tokenizer=_tokenizer(model, files),
        plan=plan,
        t3=_t3(model, files["t3"], placement, plan, home),
        flow=accelerate_flow(_flow(chosen, files["s3gen"], placement), placement, plan),
        vocoder=accelerate_vocoder(_vocoder(files["s3gen"], placement), placement, plan),
        voice=own_voice(files["voice"]),
        watermarker=Watermarker() if watermark else None,
    )


def own_voice(file: Path) -> Voice:
    """The one that a model brings along."""
    tensors = read_tensors(file).items()
    return from_release(
        {name: (t.float() if t.is_floating_point() else t).numpy() for name, t in tensors}
    )


def check_plan(plan: Plan, placement: Placement) -> None:
    """Refuse packed weights where compiled code cannot read them."""
    if plan.t3 != "fp32" and placement.device != HOST:
        raise OptionError(
            f"plan {plan.name} has packed weights, which {placement.device} cannot read; "
            "take the plan reference there"
        )


def load_encoders(components: Components) -> Encoders:
    """The three networks that make a voice."""
    file, place = components.files["s3gen"], components.placement
    config = read_config(file)
    tokenizer = speech_tokenizer.SpeechTokenizer(
        _sized(speech_tokenizer.SpeechTokenizerConfig(), config.get("tokenizer"))
    )
    load_into(tokenizer, file, prefix="tokenizer.", dead=speech_tokenizer.DEAD_TENSORS)
    speaker = xvector.XVector(_sized(xvector.XVectorConfig(), config.get("speaker_encoder")))
    load_into(speaker, file, prefix="speaker_encoder.", dead=xvector.DEAD_TENSORS)
    who = speaker_encoder.SpeakerEncoder()
    load_into(who, components.files["voice_encoder"], dead=speaker_encoder.DEAD_TENSORS)
    return Encoders(_placed(tokenizer, place), _placed(who, place), _placed(speaker, place))


def _find(name: str | Path | None, home: Path) -> tuple[Model, Files]:
    if name is not None and Path(name).is_dir():
        return find_in(Path(name), home)
    if name is not None:
        model = catalog.find(str(name))
        return model, locate(model, home)
    for model in catalog.by_preference():
        try:
            return model, locate(model, home)
        except NotPulledError:
            continue
    raise NotPulledError(
        "no model is on this machine yet; get one with `nightingale pull multilingual`"
    )


def _own_decoder(model: Model) -> Decoder:
    return "meanflow" if model.family in ("turbo", "nano") else "standard"


def pick_decoder(wanted: str | None, model: Model) -> Decoder:
    """The one that was asked for, or the one that the model was released with."""
    for decoder in get_args(Decoder):
        if wanted == decoder:
            return decoder  # type: ignore[no-any-return]
    if wanted is not None:
        raise OptionError(f"there is no decoder {wanted!r}; there are standard and meanflow")
    return _own_decoder(model)


def _other_decoder(
    decoder: Decoder, model: Model, s3gen: Path, name: str | Path | None, home: Path
) -> Path:
    """Released models share their speech tokens, so any one's decoder can be borrowed."""
    folder = Path(name) if name is not None and Path(name).is_dir() else None
    if folder or model.is_bundled:
        release = "s3gen_meanflow" if decoder == "meanflow" else "s3gen"
        file = (folder or s3gen.parent) / f"{release}.safetensors"
        if file.is_file():
            return file
        raise NotPulledError(f"the {decoder} decoder is {file}, which is not there")
    released = [lender for lender in catalog.by_preference() if not lender.is_bundled]
    lenders = [lender for lender in released if _own_decoder(lender) == decoder]
    for lender in lenders:
        try:
            return locate(lender, home)["s3gen"]
        except WeightsError:
            continue
    names = " or ".join(f"`nightingale pull {lender.name}`" for lender in lenders[:2])
    raise NotPulledError(f"the {decoder} decoder is not on this machine; get it with {names}")


def _tokenizer(model: Model, files: Files) -> TextTokenizer:
    if model.family == "english":
        return EnglishTokenizer(files["tokenizer"])
    if model.family == "fledgling":
        return FledglingTokenizer(files["tokenizer"])
    if model.family == "multilingual":
        return MultilingualTokenizer(files["tokenizer"], files.get("cangjie"))
    return Gpt2Tokenizer(files["tokenizer.vocab"].parent)


def pack_t3(name: str | Path | None, home: Path, plan: Plan) -> Path:
    """Pack the weights of a model's T3 once, so that the plan starts quickly from then on."""
    model, files = _find(name, home)
    recipe = {"t3": plan.t3, "config": {"t3": asdict(_t3_config(model, files["t3"]))}}
    module = pack(_plain_t3(model, files["t3"]), plan)
    target = packed.place(files["t3"], plan.t3, home)
    packed.keep(_to_fp16(module.state_dict()), files["t3"], recipe, target)
    return target


def _t3(model: Model, file: Path, placement: Placement, plan: Plan, home: Path) -> t3.T3:
    if plan.t3 == "fp32":
        return _placed(_plain_t3(model, file), placement)
    kept = packed.place(file, plan.t3, home)
    if not packed.is_kept(kept, home):
        return pack(_plain_t3(model, file), plan)
    with meta_init():
        module = empty_quantized(t3.T3(_t3_config(model, file)), _N_BITS[plan.t3])
    load_into(module, kept)
    _upcast(module, module.state_dict())
    return module.eval().requires_grad_(False)


def _plain_t3(model: Model, file: Path) -> t3.T3:
    with meta_init():
        module = t3.T3(_t3_config(model, file))
    load_into(module, file, dead=t3.DEAD_TENSORS)
    return module


def pack(plain: t3.T3, plan: Plan) -> t3.T3:
    """The same T3 with its layers packed as the plan wants them, in memory."""
    module = quantize(plain, _N_BITS[plan.t3])
    _upcast(module, _to_fp16(module.state_dict()))  # as if it had been kept and found again
    return module.eval().requires_grad_(False)


def _upcast(module: t3.T3, tensors: dict[str, Tensor]) -> None:
    """What was not packed is computed in 32 bits; scales are bfloat16 and stay so."""
    wide = {name: t.float() for name, t in tensors.items() if t.dtype == torch.float16}
    module.load_state_dict(wide, strict=False, assign=True)


def _t3_config(model: Model, file: Path) -> t3.T3Config:
    return _sized(t3.CONFIGS[model.family], read_config(file).get("t3"))


def _to_fp16(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What was not packed takes 16 bits on disk; what was packed is bytes and bfloat16."""
    kept = (torch.uint8, torch.bfloat16)
    return {name: t if t.dtype in kept else t.half() for name, t in tensors.items()}


def _flow(decoder: Decoder, file: Path, placement: Placement) -> flow.Flow:
    with meta_init():
        module = flow.Flow(_sized(flow.CONFIGS[decoder], read_config(file).get("flow")))
    if module.config.meanflow != (decoder == "meanflow"):
        raise LayoutError(f"{file} does not hold the {decoder} decoder, but the other one")
    load_into(module, file, prefix="flow.", dead=flow.DEAD_TENSORS)
    return _placed(module, placement)


def accelerate_flow(module: flow.Flow, placement: Placement, plan: Plan) -> flow.Flow:
    """The same flow as the plan wants it computed, where this processor can."""
    can = _has_amx(placement) and module.config.estimator.d_head in amx.D_HEADS
    if plan.flow == "bf16" and can:
        module.decoder["estimator"] = FastEstimator(module.estimator)
        module.encoder = FastEncoder(module.encoder)  # type: ignore[assignment]
    return module


def accelerate_vocoder(
    module: vocoder.Vocoder, placement: Placement, plan: Plan
) -> vocoder.Vocoder:
    """Likewise."""
    return FastVocoder(module) if plan.vocoder == "bf16" and _has_amx(placement) else module


def _has_amx(placement: Placement) -> bool:
    return placement.device == HOST and amx.is_available()


def _vocoder(file: Path, placement: Placement) -> vocoder.Vocoder:
    with meta_init():
        config = _sized(vocoder.VocoderConfig(), read_config(file).get("mel2wav"))
        module = vocoder.Vocoder(config)
    tensors = vocoder.fold_weight_norm(read_tensors(file, prefix="mel2wav."))
    load_tensors(module, tensors, file)
    return _placed(module, placement)


M = TypeVar("M", bound=nn.Module)


def _placed(module: M, placement: Placement) -> M:
    return module.eval().requires_grad_(False).to(placement.device, placement.dtype)


def _sized(released: T, stored: dict[str, Any] | None) -> T:
    """The released config, or the one that a file's header tells, whole."""
    return released if stored is None else _from_json(type(released), stored)


def _from_json(kind: Any, stored: Any) -> Any:
    """A dataclass back from JSON, whose lists were tuples."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        known = {field.name for field in fields(kind)}
        if stored.keys() - known:
            raise OptionError(f"{kind.__name__} has no {sorted(stored.keys() - known)}")
        return kind(**{name: _from_json(hints[name], value) for name, value in stored.items()})
    if isinstance(stored, list):
        return tuple(_from_json(None, value) for value in stored)
    return stored
