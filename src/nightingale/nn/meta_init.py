"""Networks without numbers, to be filled from a file: nothing is allocated and nothing is drawn.

Torch's own way (`torch.device("meta")`) still draws first numbers for every layer, and for that it
imports its compiler: two seconds, for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class _DrawNothing(TorchFunctionMode):
    """Skips what `torch.nn.init` would do."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


@contextmanager
def meta_init() -> Iterator[None]:
    """Modules that are made here have shapes and no numbers."""
    with torch.device("meta"), _DrawNothing():
        yield
