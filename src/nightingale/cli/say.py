"""`nightingale say`: text in, sound out of a file, a pipe or a loudspeaker."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nightingale.cli.terminal import find_player, play, stderr
from nightingale.core import TOKENS_PER_SECOND
from nightingale.errors import OptionError
from nightingale.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console

    from nightingale.audio.clip import Audio
    from nightingale.core import Voice
    from nightingale.pipeline import Nightingale

_MAX_STDIN = 1_000_000  # characters: more is a mistake, not a text


def say(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    text: str = typer.Argument(help="What to say; - reads it from standard input."),
    output: str | None = typer.Option(
        None, "-o", "--output", help="File to write, - for standard output. Else it is played."
    ),
    voice: str | None = typer.Option(None, help="A voice from `nightingale voice list`."),
    model: str | None = typer.Option(None, help="A pulled model, or a folder of its files."),
    language: str | None = typer.Option(None, help="Language code, such as de."),
    seed: int | None = typer.Option(None, help="Same seed, same sound."),
    temperature: float | None = typer.Option(None, help="0 is always the likeliest."),
    exaggeration: float | None = typer.Option(None, help="How much feeling."),
    cfg_weight: float | None = typer.Option(None, help="How closely the text is followed."),
    repetition_penalty: float | None = typer.Option(None),
    min_p: float | None = typer.Option(None),
    top_p: float | None = typer.Option(None),
    top_k: int | None = typer.Option(None),
    max_tokens: int | None = typer.Option(None, help="Stop after so many; 25 are a second."),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    plan: str | None = typer.Option(
        None, help="How exactly: reference, balanced, fast, live or live-fast."
    ),
    device: str = typer.Option("auto", help="Where to compute."),
    format_: str | None = typer.Option(None, "--format", help="Sound format; else the file's."),
    rate: int | None = typer.Option(None, help="Sample rate in Hz."),
    watermark: bool = typer.Option(
        True, help="Mark the sound as synthetic, inaudibly, so that it can be told from a person."
    ),
    play_it: bool = typer.Option(False, "--play", help="Play it, also when it is written."),
    stream: bool = typer.Option(
        False, "--stream", help="Let it be heard while it is made; - reads text as it comes."
    ),
) -> None:
    """Speak a text."""
    settings: Settings = context.obj
    given = {
        "language": language,
        "seed": seed,
        "temperature": temperature,
        "exaggeration": exaggeration,
        "cfg_weight": cfg_weight,
        "repetition_penalty": repetition_penalty,
        "min_p": min_p,
        "top_p": top_p,
        "top_k": top_k,
        "max_tokens": max_tokens,
    }
    options = {name: value for name, value in given.items() if value is not None}
    if stream and output is not None and play_it:
        raise OptionError("--stream either plays or writes: leave out --play or -o")
    if not stream:
        output, play_it = _destination(output, play_it)
    format_ = _check_format(output, format_, rate)
    console = stderr()

    from nightingale.pipeline import Nightingale
    from nightingale.voice.library import Library

    with console.status("loading") if console.is_terminal else _nothing():
        engine = Nightingale.load(
            model,
            home=settings.home,
            device=device,
            decoder=decoder,
            watermark=watermark,
            plan=plan or ("live" if stream else "reference"),
        )
        library, family = Library(settings.home / "voices"), engine.parts.model.family
        chosen = library.load(voice, family)[0] if voice else None
    if model is None and engine.parts.model.is_bundled:
        console.print(
            "Speaking with fledgling, the small model that comes along. "
            "`nightingale pull multilingual` brings the real voice."
        )
    if stream:
        _speak_live(engine, text, chosen, output, format_, rate, options)
        return
    with _progress(console) as progress:
        audio = engine.say(_read(text), chosen, progress=progress, **options)
    _warn(console, audio.is_complete)
    _deliver(audio, output, play_it, format_, rate)
    if console.is_terminal:
        rtf = audio.timings.total_ms / 1e3 / audio.seconds
        console.print(f"{audio.seconds:.1f} s of speech, {rtf:.2f} s of work for each")


def _speak_live(
    engine: Nightingale,
    text: str,
    voice: Voice | None,
    output: str | None,
    format_: str,
    rate: int | None,
    options: dict[str, Any],
) -> None:
    from nightingale.cli import live
    from nightingale.pace import Paced, expected_seconds

    console = stderr()
    is_known = text != "-"
    speech = engine.stream(text if is_known else _arriving(), voice, **options)
    meter = live.Meter(Paced(speech, expected_seconds(text) if is_known else 0.0))
    with live.shown(meter, console):
        live.deliver(speech, meter, output, format_, rate)
    _warn(console, speech.is_complete)
    if console.is_terminal:
        console.print(meter.summary())


def _warn(console: Console, is_complete: bool) -> None:
    if not is_complete:
        console.print("The text was cut off: a part of it took too long.", style="yellow")


def _arriving() -> Iterator[str]:
    """Standard input as it is typed or piped, up to a limit."""
    for _ in range(_MAX_STDIN):
        character = sys.stdin.read(1)
        if not character:
            return
        yield character


def _destination(output: str | None, play_it: bool) -> tuple[str | None, bool]:
    if output is None and not play_it:
        if find_player() is None:
            raise OptionError("there is no player here: say where to write with -o FILE, or -o -")
        return None, True
    return output, play_it


def _check_format(output: str | None, format_: str | None, rate: int | None) -> str:
    """A mistake here is told before the work, not after it."""
    from nightingale.audio.encode import encode, format_of

    if format_ is None:
        format_ = "wav" if output in (None, "-") else format_of(Path(output or ""))
    encode((), format_, rate)
    return format_


def _read(text: str) -> str:
    if text != "-":
        return text
    return sys.stdin.read(_MAX_STDIN)


def _deliver(
    audio: Audio, output: str | None, play_it: bool, format_: str, rate: int | None
) -> None:
    if output == "-":
        from nightingale.audio.encode import encode

        for piece in encode([audio.samples], format_, rate):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    elif output is not None:
        audio.save(output, format_, rate)
    if play_it:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "speech.wav"
            audio.save(file)
            play(str(file))


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _progress(console: Console) -> Iterator[Callable[[int], Any]]:
    """How many seconds of speech there are, on a terminal; in a pipe, silence."""
    from rich import progress

    columns = (progress.SpinnerColumn(), progress.TextColumn("{task.description}"))
    with progress.Progress(
        *columns, console=console, disable=not console.is_terminal, transient=True
    ) as bars:
        task = bars.add_task("reading", total=None)

        def report(n_tokens: int) -> None:
            seconds = n_tokens / TOKENS_PER_SECOND
            bars.update(task, description=f"{seconds:.1f} s of speech")

        yield report
