"""Sizes of networks: those of the released files, unless a file's header brings its own."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from nightingale.errors import OptionError

T = TypeVar("T")


def sized(released: T, stored: dict[str, Any] | None) -> T:
    """The released config, or the one in a file's header, whole."""
    return released if stored is None else _from_json(type(released), stored)


def _from_json(kind: Any, stored: Any) -> Any:
    """A dataclass back from JSON, whose lists were tuples."""
    if is_dataclass(kind) and isinstance(kind, type):
        hints = get_type_hints(kind)
        known = {field.name for field in fields(kind)}
        if stored.keys() - known:
            raise OptionError(f"{kind.__name__} has no {sorted(stored.keys() - known)}")
        return kind(**{name: _from_json(hints[name], value) for name, value in stored.items()})
    if get_origin(kind) is Literal and stored not in get_args(kind):
        raise OptionError(f"{stored!r} is none of {', '.join(map(repr, get_args(kind)))}")
    if isinstance(stored, list):
        return tuple(_from_json(None, value) for value in stored)
    return stored
