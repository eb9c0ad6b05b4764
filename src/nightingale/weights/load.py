"""Tensors out of safetensors into modules, strictly: nothing missing, unknown or bent.

The names in a module are the names in the file, after a prefix. Who loads says which names of a
file are dead weight and which buffers may be absent. A file of ours may hold only what is its own
and name another one beside it for the rest. Knows nothing of stages; opens no pickle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from nightingale.errors import CorruptFileError, LayoutError, NotPulledError

_N_NAMED = 3  # how many names of a kind an error lists


def read_tensors(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """All tensors whose name begins with `prefix`, called by the rest of their name."""
    with _holders(path) as holders:
        return {
            name.removeprefix(prefix): file.get_tensor(name)
            for name, file in holders.items()
            if name.startswith(prefix)
        }


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    """All of them as numpy arrays; floats in 32 bits."""
    return {
        name: (tensor.float() if tensor.is_floating_point() else tensor).numpy()
        for name, tensor in read_tensors(path).items()
    }


def read_config(path: Path) -> dict[str, Any]:
    """The sizes of its parts that a file of ours tells in its header; released files tell none."""
    with _opened_with_rest(path) as files:
        return {
            part: sizes
            for file in reversed(files)
            for part, sizes in _header(file).get("config", {}).items()
        }


def load_into(
    module: nn.Module,
    path: Path,
    *,
    prefix: str = "",
    dead: Sequence[str] = (),
    optional: Sequence[str] = (),
    dtype: torch.dtype | None = None,
) -> None:
    """Give `module` the tensors of a file; it may be on the meta device, and is in memory after.

    `dead` are patterns of names that the file has and nobody needs: they are not even read.
    `optional` are patterns of tensors that may be absent, because the module computes them itself.
    Precision is the file's, unless `dtype` asks for another; whole numbers stay whole.
    """
    wanted = module.state_dict()
    with _holders(path) as holders:
        found = {
            name.removeprefix(prefix): _Form.of_slice(file.get_slice(name))
            for name, file in holders.items()
            if name.startswith(prefix)
        }
        _check(path, wanted, found, dead, optional)
        state = {
            name: holders[prefix + name].get_tensor(prefix + name)
            for name in wanted
            if name in found
        }
    _assign(module, state, dtype)


def load_tensors(
    module: nn.Module,
    tensors: dict[str, Tensor],
    source: Path,
    *,
    dtype: torch.dtype | None = None,
) -> None:
    """As `load_into`, for tensors that were read from `source` and brought into another form."""
    found = {name: _Form.of(tensor) for name, tensor in tensors.items()}
    _check(source, module.state_dict(), found, (), ())
    _assign(module, tensors, dtype)


def _assign(module: nn.Module, state: dict[str, Tensor], dtype: torch.dtype | None) -> None:
    if dtype is not None:
        state = {
            name: tensor.to(dtype) if tensor.is_floating_point() else tensor
            for name, tensor in state.items()
        }
    module.load_state_dict(state, strict=False, assign=True)


class _Form(NamedTuple):
    """What is known of a tensor before it is read."""

    shape: list[int]
    dtype: str
    is_float: bool

    @classmethod
    def of(cls, tensor: Tensor) -> _Form:
        return cls(list(tensor.shape), str(tensor.dtype), tensor.is_floating_point())

    @classmethod
    def of_slice(cls, stored: Any) -> _Form:
        dtype = stored.get_dtype()
        return cls(stored.get_shape(), dtype, dtype.startswith(("F", "BF")))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError as error:
        raise NotPulledError(f"{path} is not there; get it with `nightingale pull`") from error
    except SafetensorError as error:
        raise CorruptFileError(
            f"{path} is truncated, or is not a safetensors file ({error}); pull the model again"
        ) from error


@contextmanager
def _opened_with_rest(path: Path) -> Iterator[list[Any]]:
    """The file, and the one beside it that has the rest, if its header names one."""
    with ExitStack() as stack:
        files = [stack.enter_context(_opened(path))]
        if "rest" in (header := _header(files[0])):
            beside = path.parent / Path(header["rest"]).name
            files.append(stack.enter_context(_opened(beside)))
        yield files


@contextmanager
def _holders(path: Path) -> Iterator[dict[str, Any]]:
    """Every tensor's name, and the opened file that has it: this one or, failing it, the rest."""
    with _opened_with_rest(path) as files:
        yield {name: file for file in reversed(files) for name in file.keys()}  # noqa: SIM118


def _header(file: Any) -> dict[str, Any]:
    header: dict[str, Any] = json.loads((file.metadata() or {}).get("nightingale", "{}"))
    return header


def _check(
    path: Path,
    wanted: dict[str, Tensor],
    found: dict[str, _Form],
    dead: Sequence[str],
    optional: Sequence[str],
) -> None:
    missing, misshaped, mistyped = [], [], []
    for name, tensor in wanted.items():
        shape = list(tensor.shape)
        if name not in found:
            # A tensor without memory cannot have been computed by the module.
            if tensor.is_meta or not _matches(name, optional):
                missing.append(f"{name} {shape}")
        elif found[name].shape != shape:
            misshaped.append(f"{name} is {found[name].shape}, not {shape}")
        elif found[name].is_float != tensor.is_floating_point():
            mistyped.append(f"{name} is {found[name].dtype}, not like {tensor.dtype}")
    unknown = [
        f"{name} {found[name].shape}"
        for name in found
        if name not in wanted and not _matches(name, dead)
    ]
    complaints = [
        f"{len(names)} {kind} ({_few(names)})"
        for kind, names in (
            ("missing", missing),
            ("unknown", unknown),
            ("of another shape", misshaped),
            ("of another kind", mistyped),
        )
        if names
    ]
    if complaints:
        raise LayoutError(
            f"the tensors in {path} are not those of this model: {'; '.join(complaints)}. "
            "Is it the file of another model?"
        )


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _few(names: list[str]) -> str:
    rest = len(names) - _N_NAMED
    return ", ".join(names[:_N_NAMED]) + (f" and {rest} more" if rest > 0 else "")
