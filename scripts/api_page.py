"""The API page: signatures and docstrings of everything in `nightingale.__all__`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import nightingale

PAGE = Path(__file__).parents[1] / "docs/api.md"
WIDTH = 100
ORDER = (
    "Nightingale", "Options", "Plan", "Audio", "AudioChunk", "SpeechStream", "AsyncSpeechStream",
    "Word", "Checkpoint", "Voice", "VoiceLibrary", "encode", "NightingaleError",
)  # fmt: skip
INTRO = """# Python API

Everything below is imported from `nightingale`; other modules are internal and may change. This
page is generated from docstrings by `scripts/api_page`.

```python
from nightingale import Nightingale

tts = Nightingale.load(plan="live")
tts.say("Hello there.").save("hello.wav")
for chunk in tts.stream("Sound comes while it is made."):
    play(chunk.samples)
```
"""


def page() -> str:
    missing = set(nightingale.__all__) - {"__version__"} - set(ORDER)
    assert not missing, f"give these a place in ORDER: {missing}"
    return INTRO + "".join(section(name, getattr(nightingale, name)) for name in ORDER)


def section(name: str, thing: Any) -> str:
    if inspect.isfunction(thing):
        return f"\n## {name}\n\n{function(name, thing)}"
    text = f"\n## {name}\n\n{documentation(thing)}"
    if dataclasses.is_dataclass(thing):
        text += "\n" + "".join(
            f"- `{field.name}: {plain(field.type)}{default(field)}`{comment(thing, field.name)}\n"
            for field in dataclasses.fields(thing)
        )
    return text + "".join(
        f"\n### {name}.{member}\n\n{entry(member, found)}" for member, found in members(thing)
    )


def members(thing: type) -> list[tuple[str, Any]]:
    """Public methods and properties that are documented, in the order in which they are written."""
    found: dict[str, Any] = {}
    for owner in reversed([kind for kind in thing.__mro__ if kind.__module__.startswith("night")]):
        found |= {
            name: member
            for name, member in vars(owner).items()
            if not name.startswith("_") and described(member)
        }
    return list(found.items())


def described(member: Any) -> bool:
    is_code = isinstance(member, property | classmethod | staticmethod) or inspect.isfunction(
        member
    )
    return is_code and bool(inspect.getdoc(member))


def entry(name: str, member: Any) -> str:
    if isinstance(member, property):
        returns = inspect.signature(member.fget).return_annotation  # type: ignore[arg-type]
        return f"`{name} -> {plain(returns)}`\n\n{documentation(member)}"
    code = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    return function(name, code)


def function(name: str, code: Any) -> str:
    signature = inspect.signature(code)
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    parts: list[str] = []
    for parameter in given:
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        parts.append(shown(parameter))
    returns = plain(signature.return_annotation)
    line = f"{name}({', '.join(parts)}) -> {returns}"
    if len(line) > WIDTH:
        line = f"{name}(\n    " + ",\n    ".join(parts) + f",\n) -> {returns}"
    return f"```python\n{line}\n```\n\n{documentation(code)}"


def shown(parameter: inspect.Parameter) -> str:
    """With its type and default, as a person would write them."""
    stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
    text = f"{stars}{parameter.name}: {plain(parameter.annotation)}"
    value = parameter.default
    if value is parameter.empty:
        return text
    value = value.name if isinstance(value, nightingale.Plan) else value
    return f"{text} = {'...' if callable(value) else repr(value)}"


def comment(thing: Any, name: str) -> str:
    """What stands behind a field in its source."""
    found = re.search(rf"^    {name}: [^#\n]*#(.*)$", inspect.getsource(thing), re.MULTILINE)
    return f":{found[1]}" if found else ""


def default(field: dataclasses.Field[Any]) -> str:
    return "" if field.default is dataclasses.MISSING else f" = {field.default!r}"


def plain(annotation: Any) -> str:
    return str(annotation).strip("'\"")


def documentation(thing: Any) -> str:
    return (inspect.getdoc(thing) or "") + "\n"


if __name__ == "__main__":
    made = page()
    if "--check" in sys.argv[1:]:
        sys.exit(
            0 if PAGE.read_text() == made else "docs/api.md is out of date: run scripts/api_page"
        )
    PAGE.write_text(made)
