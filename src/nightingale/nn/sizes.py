"""How much memory weights take."""

from __future__ import annotations

from torch import nn


def n_bytes(*modules: nn.Module) -> int:
    """All weights of some modules, in whatever form they are kept."""
    return sum(tensor.nbytes for module in modules for tensor in module.state_dict().values())
