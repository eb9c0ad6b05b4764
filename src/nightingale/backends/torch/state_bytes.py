"""States as bytes and back: a safetensors file whose header says how the tensors belong together.

No pickle: only the classes named here are made, of tensors and numbers.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from nightingale.backends.torch.flow.window import FlowState, LayerCaches, StepCaches
from nightingale.backends.torch.vocoder.pieces import Piece
from nightingale.backends.torch.vocoder.source import SourceState
from nightingale.backends.torch.vocoder.streaming import VocoderState
from nightingale.errors import CorruptFileError

_KINDS = {
    kind.__name__: kind
    for kind in (FlowState, LayerCaches, StepCaches, VocoderState, SourceState, Piece)
}
_N_LENGTH = 8  # bytes: how long a safetensors header is


def pack(state: Any) -> bytes:
    """Dataclasses of the kinds above, tuples, lists, numbers, and tensors of torch or another
    library whose tensors numpy can read."""
    tensors: dict[str, Tensor] = {}
    shape = _flatten(state, tensors)
    return save(tensors, {"shape": json.dumps(shape)})


def unpack(data: bytes) -> Any:
    """What `pack` was given, as tensors on the host."""
    try:
        tensors = load(data)
        n_header = int.from_bytes(data[:_N_LENGTH], "little")
        header = json.loads(data[_N_LENGTH : _N_LENGTH + n_header])
        return _build(json.loads(header["__metadata__"]["shape"]), tensors)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"this is no state of an utterance ({error!r})") from error


def _flatten(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if hasattr(value, "nbytes"):
        return _flatten(torch.from_numpy(np.array(value)), tensors)
    if is_dataclass(value):
        parts = {f.name: _flatten(getattr(value, f.name), tensors) for f in fields(value)}
        return {"kind": type(value).__name__, "fields": parts}
    if isinstance(value, list | tuple):
        items = [_flatten(item, tensors) for item in value]
        return {"list" if isinstance(value, list) else "tuple": items}
    return value


def _build(shape: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(shape, dict):
        return shape
    if "tensor" in shape:
        return tensors[shape["tensor"]]
    if "kind" in shape:
        parts = {name: _build(part, tensors) for name, part in shape["fields"].items()}
        return _KINDS[shape["kind"]](**parts)
    items = shape["list"] if "list" in shape else shape["tuple"]
    built = [_build(item, tensors) for item in items]
    return built if "list" in shape else tuple(built)
