"""`nightingale voice`: make a voice from a recording; list, export, import and remove voices."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import typer

from nightingale.cli.terminal import stderr
from nightingale.settings import Settings

voices = typer.Typer(help="Make and keep voices.", no_args_is_help=True)


@voices.command()
def add(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    name: str = typer.Argument(help="What to call it."),
    recording: Path = typer.Argument(help="A few seconds of one person speaking, or a voice file."),
    model: str | None = typer.Option(None, help="The model it is for, or a folder of its files."),
    language: str | None = typer.Option(None, help="The language that is spoken in it."),
    consent: str | None = typer.Option(None, help="Who agreed to this, in your own words."),
    device: str = typer.Option("auto", help="Where to compute."),
    force: bool = typer.Option(
        False, "--force", help="Accept a recording that is too short or not like speech."
    ),
) -> None:
    """Clone a voice from a recording, or import a voice file. Only with permission."""
    settings: Settings = context.obj

    from nightingale.voice.card import Card, is_voice_file
    from nightingale.voice.library import Library, read

    library = Library(settings.home / "voices")
    library.check_free(name)
    if is_voice_file(recording) or recording.suffix == ".safetensors":
        voice, card = read(recording)
        card = replace(card, language=language or card.language, consent=consent or card.consent)
        library.save(name, voice, card)
        return
    from nightingale.pipeline import Nightingale

    console = stderr()
    engine = Nightingale.load(model, home=settings.home, device=device, watermark=False)
    voice, report = engine.clone(recording, force=force)
    console.print(report.summary)
    for warning in report.warnings:
        console.print(warning, style="yellow")
    source = hashlib.sha256(recording.read_bytes()).hexdigest()
    card = Card(engine.parts.model.family, language, source, consent)
    library.save(name, voice, card)


@voices.command("list")
def list_(context: typer.Context) -> None:
    """List the voices on this machine."""
    settings: Settings = context.obj

    from rich.console import Console
    from rich.table import Table

    from nightingale.voice.library import Library

    library = Library(settings.home / "voices")
    table = Table("name", "made for", "language", "consent", box=None, pad_edge=False)
    for name in library.names():
        _, card = library.load(name)
        table.add_row(name, card.family, card.language or "", card.consent or "")
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = 120  # a row stays a line for the program that reads it
    console.print(table)


@voices.command()
def export(
    context: typer.Context,
    name: str = typer.Argument(help="The voice."),
    file: Path = typer.Argument(help="Where to write it: a file, or a folder."),
    force: bool = typer.Option(False, "--force", help="Overwrite the file if it exists."),
) -> None:
    """Copy a voice to a file, which `voice add` imports elsewhere whatever its name."""
    settings: Settings = context.obj

    from nightingale.voice.folder import Folder

    written = Folder(settings.home / "voices").export(name, file, overwrite=force)
    size_kb = written.stat().st_size / 1000
    stderr().print(f"Voice {name!r} exported to {written} ({size_kb:.0f} kB).")


@voices.command()
def remove(context: typer.Context, name: str = typer.Argument()) -> None:
    """Delete a voice. Nothing of it stays on this machine."""
    settings: Settings = context.obj

    from nightingale.voice.library import Library

    Library(settings.home / "voices").remove(name)
