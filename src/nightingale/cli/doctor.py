"""`nightingale doctor`: what would run, on which device and why; what is missing."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import typer

from nightingale import __version__
from nightingale.cli.player import find_players
from nightingale.core import AUTO, AUTO_DEVICE, Plan
from nightingale.settings import Settings

_PLANS = {
    "files": Plan.named(AUTO),
    "streams": Plan.named(AUTO, stream=True),
}  # what is the default

# extra -> (package, what it is for)
_EXTRAS = {
    "codecs": ("av", "Opus and AAC"),
    "chinese": ("spacy-pkuseg", "Chinese word segmentation"),
    "japanese": ("pykakasi", "Japanese kanji readings"),
    "server": ("fastapi", "server"),
    "plot": ("matplotlib", "plots"),
}


def doctor(context: typer.Context) -> None:
    """Show what would run, on which device and why, and what is missing."""
    settings: Settings = context.obj

    from rich.console import Console
    from rich.table import Table

    from nightingale import backends, device_check

    table = Table("what", "state", box=None, pad_edge=False, show_header=False)
    table.add_row("nightingale", f"{__version__}, Python {platform.python_version()}")
    for name in backends.names():
        available = backends.find(name).availability()
        state = "available" if available.is_available else f"not available: {available.reason}"
        table.add_row(f"backend {name}", state)
        for what, fact in available.facts.items():
            table.add_row(what, fact)
        if available.is_available:
            for what, plan in _PLANS.items():
                table.add_row(what, str(backends.find(name).resolve(plan, AUTO_DEVICE)))
            if name in device_check.TESTED and name in backends.by_preference():
                table.add_row("self-test", _self_test(name, available.facts, settings))
    table.add_row("model", _model(settings))
    table.add_row("voices", _voices(settings))
    for extra, (package, purpose) in _EXTRAS.items():
        table.add_row(purpose, _package(extra, package))
    players = find_players()
    table.add_row("player", players[0][0] if players else "none: install ffmpeg, or write to files")
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 120
    console.print(table)


def _self_test(name: str, facts: Mapping[str, str], settings: Settings) -> str:
    """Run anew: whether the device computes what it should."""
    from nightingale import backends, device_check

    device = backends.find(name).resolve(Plan.named(AUTO), AUTO_DEVICE).device
    fault = device_check.fault(name, device, facts, settings.home, again=True)
    if not fault:
        return f"passed on {device}: tokens and mel of a stored sentence are right"
    return f"FAILED on {device}, so the device auto is the CPU: {fault}"


def _model(settings: Settings) -> str:
    from nightingale.errors import CorruptFileError, NotPulledError
    from nightingale.weights import catalog, manifest

    notes = []
    for model in catalog.by_preference():
        try:
            files = manifest.locate(model, settings.home)
        except NotPulledError:
            continue
        except CorruptFileError as error:
            notes.append(str(error))
        else:
            return "; ".join([f"{model.name} (T3 {_digest(files['t3'], settings)})", *notes])
    return "; ".join(["none on this machine: get one with `nightingale pull multilingual`", *notes])


def _digest(file: Path, settings: Settings) -> str:
    from nightingale.weights.manifest import digest_of

    return f"sha256 {digest_of(file, settings.home)[:16]}"


def _voices(settings: Settings) -> str:
    from nightingale.voice.folder import BUILT_IN, Folder

    own = Folder(settings.home / "voices").names() or [
        "none of your own yet (`nightingale voice add`)"
    ]
    built_in = ", ".join(Folder(BUILT_IN).names())
    return f"{', '.join(own)}; built in, for fledgling: {built_in}"


def _package(extra: str, package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return f"no: pip install 'nightingale-tts[{extra}]'"
