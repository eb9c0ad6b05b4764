"""`nightingale voice`: clone a voice from a recording; list, export, import and remove voices."""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nightingale.cli.terminal import stderr
from nightingale.core import MAX_SPEED, MIN_SPEED
from nightingale.errors import NightingaleError
from nightingale.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

voices = typer.Typer(help="Clone, list, export and remove voices.", no_args_is_help=True)


@voices.command()
def add(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    name: str = typer.Argument(help="Name of the new voice."),
    recording: Path = typer.Argument(
        help="A recording of one person speaking, best 10 s; or a voice file."
    ),
    model: str | None = typer.Option(
        None, help="Model to clone for: a name, or a folder of its files."
    ),
    language: str | None = typer.Option(None, help="Language of the recording."),
    consent: str | None = typer.Option(
        None, help="Who gave permission, when and how; kept with the voice."
    ),
    speed: float | None = typer.Option(
        None, min=MIN_SPEED, max=MAX_SPEED, help="The voice's own speaking rate; 0.85 is slower."
    ),
    device: str = typer.Option("auto", help="Device to compute on."),
    force: bool = typer.Option(
        False, "--force", help="Accept a recording that is too short or not like speech."
    ),
    keep_loudness: bool = typer.Option(
        False,
        "--keep-loudness",
        help="Keep the recording's level instead of making all voices equally loud.",
    ),
) -> None:
    """Clone a voice from a recording, or import a voice file.

    Only clone voices with permission.
    """
    settings: Settings = context.obj

    from nightingale.voice.library import VoiceLibrary, read
    from nightingale.voice.metadata import VoiceMetadata, is_voice_file

    library, console = VoiceLibrary(settings.home / "voices"), stderr()
    library.check_free(name)
    if is_voice_file(recording) or recording.suffix == ".safetensors":
        voice, metadata = read(recording)
        metadata = replace(
            metadata, language=language or metadata.language, consent=consent or metadata.consent
        )
        library.save(name, replace(voice, speed=speed or voice.speed), metadata)
        console.print(f'Voice "{name}" imported from {recording} (made for {metadata.family}).')
        _print_next(console, name, model, metadata.consent)
        return
    from nightingale.pipeline import Nightingale

    tts = Nightingale.load(model, home=settings.home, device=device, watermark=False)
    voice = tts.clone(recording, force=force, keep_loudness=keep_loudness)
    voice, report = replace(voice, speed=speed or voice.speed), voice.report
    source = hashlib.sha256(recording.read_bytes()).hexdigest()
    gain_db = report.level.gain_db if report.level else 0.0
    library.save(
        name, voice, VoiceMetadata(tts.components.model.family, language, source, consent, gain_db)
    )
    for warning in report.warnings:
        console.print(f"warning: {warning}", style="yellow")
    console.print(f'Voice "{name}" saved: {report.summary}.')
    _print_next(console, name, model, consent)


def _print_next(console: Console, name: str, model: str | None, consent: str | None) -> None:
    """What can be done with a new voice, and what is missing."""
    chosen = f" --model {shlex.quote(model)}" if model else ""
    console.print(f'Try: nightingale say "Hello, it is me." --voice {name}{chosen}')
    if not consent:
        console.print('No consent recorded; add --consent "who gave permission, when and how".')


@voices.command("list")
def list_(context: typer.Context) -> None:
    """List the voices on this machine."""
    settings: Settings = context.obj

    from rich.console import Console
    from rich.table import Table

    from nightingale.voice.folder import BUILT_IN, Folder

    folder = Folder(settings.home / "voices", BUILT_IN)
    if not Folder(settings.home / "voices").names():
        stderr().print("No voice of your own yet. Make one: `nightingale voice add NAME FILE`.")
    table = Table("name", "model", "language", "added", "consent", box=None, pad_edge=False)
    for name in folder.names():
        table.add_row(name, *_row(folder.find(name), is_built_in=folder.is_built_in(name)))
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 160  # a row stays a line for the program that reads it
    console.print(table)


def _row(file: Path, *, is_built_in: bool) -> tuple[str, str, str, str]:
    """What a voice file says of itself; a broken one does not hide the others."""
    from nightingale.voice.metadata import read_metadata

    added = datetime.fromtimestamp(file.stat().st_mtime).strftime("%Y-%m-%d")
    added = "built in" if is_built_in else added
    try:
        metadata = read_metadata(file)
    except NightingaleError:
        return "(damaged)", "", added, ""
    texts = (metadata.language or "", metadata.consent or "none recorded")
    # A voice file may come from anywhere, and so may what it tells a terminal to do.
    language, consent = ("".join(c if c.isprintable() else " " for c in text) for text in texts)
    return metadata.family, language, added, consent


@voices.command()
def export(
    context: typer.Context,
    name: str = typer.Argument(help="The voice."),
    file: Path = typer.Argument(help="Where to write it: a file, or a folder."),
    force: bool = typer.Option(False, "--force", help="Overwrite the file if it exists."),
) -> None:
    """Copy a voice to a file, which `voice add` imports elsewhere whatever its name."""
    settings: Settings = context.obj

    from nightingale.voice.folder import BUILT_IN, Folder

    written = Folder(settings.home / "voices", BUILT_IN).export(name, file, overwrite=force)
    size_kb = written.stat().st_size / 1000
    stderr().print(f"Voice {name!r} exported to {written} ({size_kb:.0f} kB).")


@voices.command()
def remove(context: typer.Context, name: str = typer.Argument(help="The voice to delete.")) -> None:
    """Delete a voice and its file."""
    settings: Settings = context.obj

    from nightingale.voice.folder import BUILT_IN, Folder

    Folder(settings.home / "voices", BUILT_IN).remove(name)
    stderr().print(f"Voice {name!r} deleted.")
