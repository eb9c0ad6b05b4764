"""One call of `say`: loads the model and sends the sound where it belongs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale.cli import player, preflight, text_input
from nightingale.cli.progress import Spoken, speaking, working
from nightingale.cli.terminal import stderr
from nightingale.core import TOKENS_PER_SECOND, Options, Plan
from nightingale.prebuffer import expected_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from nightingale.cli.preflight import Target
    from nightingale.core import Voice
    from nightingale.pipeline import Nightingale
    from nightingale.speech import SpeechStream
    from nightingale.weights.catalog import Model

Text = str | Iterable[str]  # all of it, or pieces as they arrive


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, checked as far as that can be done without loading the model."""

    home: Path
    target: Target
    model: Model
    model_name: str | None  # as it was given: a name, a folder or nothing
    voice: str | None
    voice_file: Path | None
    options: dict[str, Any]  # those that were given
    checked: Options  # and all of them
    plan: str
    decoder: str | None
    backend: str
    device: str
    watermark: bool
    threads: int | None
    is_streamed: bool
    is_resumed: bool
    is_quiet: bool
    named_voices: dict[str, Path | None] = field(default_factory=dict)  # None: the model's own

    def with_voices_of(self, text: Text) -> Request:
        """Those that the mark-up of a known text names are there."""
        if not isinstance(text, str):
            return self
        names = text_input.voice_names(text, self.checked)
        return replace(self, named_voices=preflight.check_voices(names, self.home))

    def speak(self, text: Text) -> None:
        """Speak into a file, a pipe or a player."""
        from nightingale.cli.file_job import speak_to_file

        console, target = stderr(), self.target
        if target.file is not None:
            speak_to_file(self, text, target.file, console)
        elif target.is_stdout or (self.is_streamed and player.find_live_players()):
            self._speak_live(text, console)
        elif target.output is not None:
            self._speak_to(Path(target.output), text, console)  # a pipe or a device
        else:
            if self.is_streamed and not self.is_quiet:
                console.print("No player here takes a stream: it is played when all is spoken.")
            with tempfile.TemporaryDirectory() as folder:
                sound = Path(folder) / "speech.wav"
                self._speak_to(sound, text, console)
                player.play(str(sound))

    def load(self, console: Console) -> tuple[Nightingale, Voice | None]:
        """The model and the voice."""
        with working(console, "loading the model", quiet=self.is_quiet):
            from nightingale.pipeline import Nightingale

            tts = Nightingale.load(
                self.model_name,
                home=self.home,
                device=self.device,
                decoder=self.decoder,
                watermark=self.watermark,
                plan=Plan.named(self.plan, stream=self.is_streamed),
                backend=self.backend,
                threads=self.threads,
            )
            family = tts.components.model.family
            voice = tts.voices.load(self.voice, family)[0] if self.voice else None
        if not self.is_quiet:
            console.print(str(tts.components.resolved), soft_wrap=True)
        if self.model_name is None and tts.components.model.is_bundled and not self.is_quiet:
            console.print(
                "Speaking with Fledgling, the small bundled model. "
                "`nightingale pull multilingual` downloads the full-quality one."
            )
        return tts, voice

    @contextmanager
    def speaking(self, text: Text, console: Console) -> Iterator[SpeechProgress]:
        """Shows which share of the text is spoken."""
        with speaking(console, quiet=self.is_quiet) as report:
            yield SpeechProgress(text, report)

    def _speak_live(self, text: Text, console: Console) -> None:
        """To standard output or a player, while it is made."""
        from nightingale.cli import live
        from nightingale.prebuffer import Prebuffered

        tts, voice = self.load(console)
        if self.is_streamed:
            speech = tts.stream(text, voice, **self.options)
            seconds = expected_seconds(text) if isinstance(text, str) else 0.0
            seconds /= self.checked.speed
            meter = live.Meter(Prebuffered(speech, seconds))
            with live.shown(meter, console, quiet=self.is_quiet):
                live.deliver(meter.samples(), self.target, speech.cancel)
        else:
            with self.speaking(text, console) as progress:
                speech = progress.follow(tts.stream, voice, self.options)
                live.deliver((chunk.samples for chunk in speech), self.target, speech.cancel)
        warn(speech.is_complete, speech.unspoken, console)
        if speech.language is not None and not self.is_quiet:
            console.print(f"Language: {speech.language.description}")

    def _speak_to(self, file: Path, text: Text, console: Console) -> None:
        """To a file that nobody needs after an interruption."""
        from nightingale.audio.encode import write

        tts, voice = self.load(console)
        with self.speaking(text, console) as progress:
            speech = progress.follow(tts.stream, voice, self.options)
            samples = (chunk.samples for chunk in speech)
            write(file, samples, self.target.format, self.target.rate_hz)
        warn(speech.is_complete, speech.unspoken, console)


class SpeechProgress:
    """Is called for every speech token, and reports how much of the text is spoken."""

    def __init__(self, text: Text, report: Spoken) -> None:
        self._text, self._report = text, report
        self._speech: SpeechStream | None = None

    @property
    def is_known(self) -> bool:
        """The whole text is here."""
        return isinstance(self._text, str)

    def follow(
        self, stream: Callable[..., SpeechStream], voice: Voice | None, options: dict[str, Any]
    ) -> SpeechStream:
        """Start to speak."""
        self._speech = stream(self._text, voice, progress=self, **options)
        return self._speech

    def __call__(self, n_tokens: int) -> None:
        self._report(self._share(n_tokens), n_tokens / TOKENS_PER_SECOND)

    def _share(self, n_tokens: int) -> float | None:
        if not isinstance(self._text, str):
            return None
        n_spoken = self._speech.n_characters if self._speech else 0
        if n_spoken:
            return min(1.0, n_spoken / len(self._text))
        # In the first part of the text: go by the length of the sound.
        return min(0.99, n_tokens / TOKENS_PER_SECOND / expected_seconds(self._text))


def warn(is_complete: bool, unspoken: Sequence[str], console: Console) -> None:
    """Failure is loud, also when the rest is quiet."""
    if unspoken:
        line = f"Not spoken (unknown to this model): {' '.join(unspoken)}"
        console.print(line, style="yellow")
    if not is_complete:
        console.print("The text was cut off: a part of it took too long.", style="yellow")
