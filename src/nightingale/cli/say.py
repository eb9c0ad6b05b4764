"""`nightingale say`: text in, sound out of a file, a pipe or a loudspeaker."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from nightingale.cli import text_input
from nightingale.cli.terminal import stderr, terminable
from nightingale.core import AUTO, DEVICES, PLANS
from nightingale.settings import Settings
from nightingale.text.detection import DETECT


class SayCommand(TyperCommand):
    """A text may begin with a dash: `say "-5 degrees"` is no option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Hand texts over behind `--`, where nothing is an option."""
        known = {name: option for option in self.params for name in option.opts}
        options, texts, is_value = list[str](), list[str](), False
        for number, argument in enumerate(args):
            if argument == "--":
                texts += args[number + 1 :]
                break
            if not is_value and _is_text(argument, known):
                texts.append(argument)
                continue
            options.append(argument)
            option = None if is_value else known.get(argument)
            is_value = option is not None and not getattr(option, "is_flag", True)
        return super().parse_args(ctx, [*options, "--", *texts] if texts else options)


def _is_text(argument: str, known: dict[str, Any]) -> bool:
    """It begins with a dash, and no option looks like that."""
    if not argument.startswith("-") or argument == "-":
        return False
    name = argument.partition("=")[0] if argument.startswith("--") else argument[:2]
    has_space = any(character.isspace() for character in argument)
    return name not in known and (has_space or argument[1].isdigit())


def say(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    words: list[str] | None = typer.Argument(
        None, metavar="TEXT", help="Text to speak; - reads it from standard input."
    ),
    file: Path | None = typer.Option(None, "-f", "--file", help="Read the text from this file."),
    output: str | None = typer.Option(
        None, "-o", "--output", help="Output file; - for standard output. Default: play it."
    ),
    resume: bool = typer.Option(
        False, "--resume", help="Continue an interrupted run with the same output file."
    ),
    voice: str | None = typer.Option(None, help="Voice from `nightingale voice list`."),
    model: str | None = typer.Option(None, help="Model name, or a folder with its files."),
    language: str | None = typer.Option(
        None, help="Language code, such as de; auto detects it from the text."
    ),
    normalization: str | None = typer.Option(
        None, help="Read figures as words: auto (default), off, or a locale such as en-GB."
    ),
    markup: str | None = typer.Option(
        None, help="Follow tags such as [pause:500ms]: auto (default) or off."
    ),
    show_text: bool = typer.Option(
        False, "--show-text", help="Print the text that would be spoken, and speak nothing."
    ),
    pronunciations: Path | None = typer.Option(
        None, help="File with pronunciations. Default: pronunciations.toml of the home folder."
    ),
    speed: float | None = typer.Option(None, help="Speaking rate, 0.5 to 2.0; same pitch."),
    seed: int | None = typer.Option(None, help="Random seed; same seed, same audio."),
    temperature: float | None = typer.Option(None, help="Sampling temperature; 0 = greedy."),
    exaggeration: float | None = typer.Option(None, help="Emotional intensity."),
    cfg_weight: float | None = typer.Option(None, help="Classifier-free guidance weight."),
    repetition_penalty: float | None = typer.Option(None, help="Repetition penalty; 1 = off."),
    min_p: float | None = typer.Option(None, help="Min-p sampling threshold; 0 = off."),
    top_p: float | None = typer.Option(None, help="Nucleus sampling threshold; 1 = off."),
    top_k: int | None = typer.Option(None, help="Top-k sampling; 0 = off."),
    max_tokens: int | None = typer.Option(
        None, help="Maximum speech tokens per part of the text; 25 are one second."
    ),
    sentence_pause_ms: int | None = typer.Option(None, help="Pause between sentences."),
    item_pause_ms: int | None = typer.Option(None, help="Pause between list items."),
    paragraph_pause_ms: int | None = typer.Option(None, help="Pause between paragraphs."),
    heading_pause_ms: int | None = typer.Option(None, help="Pause around headings."),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    plan: str = typer.Option(AUTO, help=f"Speed/precision plan: {', '.join(PLANS)}."),
    backend: str = typer.Option("auto", help="Backend to compute with."),
    device: str = typer.Option("auto", help=f"Device to compute on: {DEVICES}"),
    threads: int | None = typer.Option(None, min=1, help="CPU threads. Default: torch's choice."),
    format_: str | None = typer.Option(
        None, "--format", help="Audio format. Default: by the file's extension."
    ),
    rate: int | None = typer.Option(None, help="Sample rate in Hz."),
    watermark: bool = typer.Option(True, help="Add an inaudible watermark: this is synthetic."),
    play_it: bool = typer.Option(False, "--play", help="Play it even when writing a file."),
    stream: bool = typer.Option(
        False, "--stream", help="Play or write audio while it is made; - reads text as it arrives."
    ),
    quiet: bool = typer.Option(False, "-q", "--quiet", help="Print only warnings and errors."),
) -> None:
    """Speak a text."""
    from nightingale.cli import preflight
    from nightingale.cli.request import Request

    settings: Settings = context.obj
    words = words or []
    text_input.check_source(words, file)
    is_arriving, read = stream and words == ["-"], cache(lambda: text_input.read(words, file))
    if language == DETECT and not is_arriving:
        language = preflight.detect(model, settings.home, read(), quiet=quiet)
    given = {
        "language": language, "normalization": normalization, "markup": markup, "speed": speed,
        "seed": seed, "temperature": temperature, "exaggeration": exaggeration,
        "cfg_weight": cfg_weight, "repetition_penalty": repetition_penalty, "min_p": min_p,
        "top_p": top_p, "top_k": top_k, "max_tokens": max_tokens,
        "sentence_pause_ms": sentence_pause_ms, "item_pause_ms": item_pause_ms,
        "paragraph_pause_ms": paragraph_pause_ms, "heading_pause_ms": heading_pause_ms,
    }  # fmt: skip
    options: dict[str, Any] = {name: v for name, v in given.items() if v is not None}
    said = text_input.pronunciations(pronunciations, settings.home, language, voice)
    options |= {"pronunciations": said} if said else {}
    if show_text:
        text_input.show(read(), options)
        return
    target = preflight.check_target(output, format_, rate, play=play_it, stream=stream)
    preflight.check_plan(plan, decoder, device, backend)
    found = preflight.check_model(model, settings.home)
    request = Request(
        home=settings.home,
        target=target,
        model=found,
        model_name=model,
        voice=voice,
        voice_file=preflight.check_voice(voice, settings.home),
        options=options,
        checked=preflight.check_options(found, options, model),
        plan=plan,
        decoder=decoder,
        backend=backend,
        device=device,
        watermark=watermark,
        threads=threads,
        is_streamed=stream,
        is_resumed=resume,
        is_quiet=quiet,
    )
    with terminable():
        text = text_input.arriving() if is_arriving else read()
        if words and text_input.is_file_name(words[0]) and not quiet:
            name = words[0]
            stderr().print(f"Speaking the words {name!r}; to read the file use --file {name}")
        request.with_voices_of(text).speak(text)
