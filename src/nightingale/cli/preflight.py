"""What can be checked before a model is loaded is checked here, without importing torch.

A mistake then costs less than a second, not the minutes after which the sound would be written.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale import backends
from nightingale.cli import player
from nightingale.cli.terminal import stderr
from nightingale.core import DEFAULT_VOICE, Options, Plan, check_device
from nightingale.errors import NotPulledError, OptionError
from nightingale.text.detection import DETECT, detect_language
from nightingale.text.languages import LANGUAGES, check_language

if TYPE_CHECKING:
    from nightingale.weights.catalog import Model

_DECODERS = (None, "standard", "meanflow")


@dataclass(frozen=True, slots=True)
class Target:
    """Where the sound goes, and in which form."""

    output: str | None  # as it was given; None: it is only played
    format: str
    rate_hz: int | None
    is_played: bool

    @property
    def is_stdout(self) -> bool:
        return self.output == "-"

    @property
    def file(self) -> Path | None:
        """A file that can be kept beside what is not finished; no pipe and no device."""
        if self.output is None or self.is_stdout:
            return None
        path = Path(self.output).resolve()  # a link stays a link
        return None if path.exists() and not path.is_file() else path


def check_target(
    output: str | None, format_: str | None, rate: int | None, *, play: bool, stream: bool
) -> Target:
    """The folder exists and can be written, the format is known, and somebody can play it."""
    if stream and output is not None and play:
        raise OptionError("--stream either plays or writes: leave out --play or -o")
    play = play or output is None
    if play:
        player.require(is_live=stream)
    if output == "-" and sys.stdout.isatty():
        raise OptionError("binary output to a terminal; use -o FILE or pipe it")
    if output is not None and output != "-":
        _check_writable(Path(output))
    return Target(output, _check_format(output, format_, rate), rate, play)


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise OptionError(f"{path} is a folder; give the name of a file in it")
    if path.exists() and not os.access(path, os.W_OK):
        raise OptionError(f"{path} cannot be written: permission denied")
    folder = path.resolve().parent
    if not folder.is_dir():
        raise OptionError(f"{path} cannot be written: there is no folder {folder}; make it first")
    is_special = path.exists() and not path.is_file()
    if not is_special and not os.access(folder, os.W_OK | os.X_OK):
        raise OptionError(f"{path} cannot be written: {folder} is read-only for you")


def _check_format(output: str | None, format_: str | None, rate: int | None) -> str:
    from nightingale.audio.encode import encode, format_of

    if format_ is None:
        format_ = "wav" if output in (None, "-") else format_of(Path(output or ""))
    encode((), format_, rate)
    return format_


def check_model(name: str | None, home: Path) -> Model:
    """The model that will be loaded: it is on this machine."""
    from nightingale.weights import catalog, folder, manifest

    if name is not None and Path(name).is_dir():
        return folder.identify(Path(name))
    if name is not None:
        model = catalog.find(name)
        manifest.locate(model, home)
        return model
    for model in catalog.by_preference():
        try:
            manifest.locate(model, home)
        except NotPulledError:
            continue
        return model
    raise NotPulledError(
        "no model is on this machine yet; get one with `nightingale pull multilingual`"
    )


def check_options(model: Model, given: dict[str, Any], name: str | None = None) -> Options:
    """Every value within its bounds, and a language that the model speaks.

    `name` may be a folder: then also languages beyond the 23 that its tokenizer file has a tag for.
    """
    options = replace(model.spec.options, **given)
    spoken = list(LANGUAGES) if model.spec.tokenizer == "multilingual" else ["en"]
    wanted = (options.language or "").strip().lower()
    folder = Path(name or "")
    if name and folder.is_dir() and len(spoken) > 1 and re.fullmatch("[a-z]{2}", wanted):
        file = next(folder / part.path for part in model.parts if part.role == "tokenizer")
        spoken += [wanted] * (f'"[{wanted}]"' in file.read_text(encoding="utf-8"))
    if options.language != DETECT:
        check_language(options.language, spoken)
    return options


def detect(model: str | None, home: Path, text: str, *, quiet: bool) -> str:
    """The language of a text, of those that the model speaks; says which."""
    found = detect_language(text, check_model(model, home).languages)
    if not quiet:
        stderr().print(f"Language: {found.description}")
    return found.code


def check_plan(plan: str, decoder: str | None, device: str, backend: str) -> None:
    """Names that exist; whether this machine has the device, only the backend knows."""
    Plan.named(plan)
    if decoder not in _DECODERS:
        raise OptionError(f"there is no decoder {decoder!r}; there are standard and meanflow")
    check_device(device)
    backends.check_name(backend)


def check_voices(names: Sequence[str], home: Path) -> dict[str, Path | None]:
    """The files of voices that mark-up names; None: the model's own."""
    return {name: check_voice(None if name == DEFAULT_VOICE else name, home) for name in names}


def check_voice(name: str | None, home: Path) -> Path | None:
    """The file of a voice that is there."""
    from nightingale.voice.folder import BUILT_IN, Folder

    return None if name is None else Folder(home / "voices", BUILT_IN).find(name)
