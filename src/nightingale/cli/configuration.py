"""Options of a command from a TOML file and from the environment: flag > environment > file.

Names are the command's own: `--max-requests` is `max_requests` in the file, and with a prefix and
in capitals in the environment. Everything is checked as the flag would be.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from nightingale.cli.terminal import stderr

_UsageError: type[Exception] = typer.BadParameter.__mro__[1]  # typer has no public name for it
_KINDS: dict[type, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    Path: "a string",
    list: "a list of strings",
}


class ConfiguredCommand(TyperCommand):
    """A command whose wrong options are said in one line, with where the value came from."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        options: list[Any] = list(self.params)
        for option in options:  # one sentence in the help says how all of them are named
            option.show_envvar = False

    def make_context(self, *args: Any, **extra: Any) -> Any:
        try:
            return super().make_context(*args, **extra)
        except _UsageError as error:
            message = error.format_message()  # type: ignore[attr-defined]
            stderr().print(message.rstrip(".") + _origin(error), style="red")
            raise typer.Exit(2) from error


def read_config(context: typer.Context, file: Path | None) -> Path | None:
    """Callback of `--config`: the file's values become the command's defaults."""
    if file is None:
        return None
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # not TOML, or not UTF-8
        raise typer.BadParameter(f"{file} is not a TOML file: {error}") from error
    hints = get_type_hints(context.command.callback)
    known = {option.name: hints[option.name] for option in context.command.params if option.name}
    for key, value in given.items():
        _check(file, key, value, {name: hint for name, hint in known.items() if name != "config"})
    context.default_map = {**(context.default_map or {}), **given}
    return file


def _check(file: Path, key: str, value: Any, known: Mapping[str, Any]) -> None:
    if key not in known:
        close = difflib.get_close_matches(key.replace("-", "_"), known, n=1)
        hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(sorted(known))}"
        raise typer.BadParameter(f"{file}: {key} is not known; {hint}")
    kind = _kind(known[key])
    if not _is_of(value, kind):
        raise typer.BadParameter(f"{file}: {key} is {value!r}, but must be {_KINDS[kind]}")


def _kind(hint: Any) -> type:
    """`list[str]` is list, `int | None` is int."""
    if get_origin(hint) is list:
        return list
    kinds = [kind for kind in get_args(hint) or (hint,) if kind is not type(None)]
    return kinds[0]  # type: ignore[no-any-return]


def _is_of(value: Any, kind: type) -> bool:
    if kind is list:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    if isinstance(value, bool):  # which is an int as well
        return kind is bool
    if kind is float:
        return isinstance(value, int | float)
    return isinstance(value, str if kind is Path else kind)


def _origin(error: Any) -> str:
    """Where a value came from that was not typed."""
    context, option = getattr(error, "ctx", None), getattr(error, "param", None)
    if context is None or option is None:
        return ""
    source = context.get_parameter_source(option.name)
    if source is not None and source.name == "ENVIRONMENT":
        return f" (from {context.auto_envvar_prefix}_{option.name.upper()})"
    if source is not None and source.name == "DEFAULT_MAP":
        return f" (from {context.params.get('config')})"
    return ""
