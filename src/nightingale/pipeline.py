"""Text in, sound out: one model, and what can be asked of it.

`Nightingale` holds the weights of one model and nothing of any request. Plans without windows
render an utterance at once, numerically the upstream model; the others window after window.
"""

from __future__ import annotations

import os
from collections.abc import (
    AsyncIterable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np

from nightingale.async_stream import AsyncSpeechStream
from nightingale.audio.clip import Audio
from nightingale.audio.pauses import PartJoiner
from nightingale.backends.base import DecodedWindow, TokenEvent, WindowJob
from nightingale.cloning import ClonedVoice, VoiceCloner
from nightingale.core import (
    DEFAULT_VOICE,
    SAMPLES_PER_SECOND,
    AudioChunk,
    OptionFields,
    Options,
    Plan,
    Voice,
)
from nightingale.loader import DEFAULT_BACKEND, REFERENCE, Components, LoadOptions, load_components
from nightingale.settings import Settings
from nightingale.speaking_rate import limited_speed
from nightingale.speech import Checkpoint, SpeechState, SpeechStream
from nightingale.synthesis import Progress, Script, Synthesizer, n_samples
from nightingale.text.detection import DETECT, arriving_sample, beginning, detect_language
from nightingale.text.languages import check_language
from nightingale.text.markup import Markup
from nightingale.text.parts import text_parts
from nightingale.text.split import TextPart
from nightingale.text.structure import Break, pause_samples
from nightingale.voice.folder import BUILT_IN
from nightingale.voice.library import VoiceLibrary

if TYPE_CHECKING:
    from nightingale.voice.clone import Encoders


class Nightingale:
    """One model, ready to speak. Requests from several threads wait for each other."""

    def __init__(self, components: Components, home: Path | None = None) -> None:
        self.components, self._home = components, home or Settings.read(os.environ).home
        self.defaults = components.spec.options
        self._synthesizer = Synthesizer(components)
        self.cloner = VoiceCloner(components, self.say, self._synthesizer.lock)

    @classmethod
    def load(  # noqa: PLR0913
        cls,
        model: str | Path | None = None,
        *,
        home: Path | None = None,
        device: str = "auto",
        decoder: str | None = None,
        watermark: bool = True,
        plan: Plan | str = REFERENCE,
        backend: str = DEFAULT_BACKEND,
        threads: int | None = None,
    ) -> Nightingale:
        """A pulled model by its name, a folder of released files, or the best that is here."""
        home = home or Settings.read(os.environ).home
        chosen = Plan.named(plan) if isinstance(plan, str) else plan
        wanted = LoadOptions(device, decoder, watermark, chosen, backend, threads)
        return cls(load_components(model, home, wanted), home)

    @property
    def sample_rate(self) -> int:
        """Samples a second of everything that it says."""
        return SAMPLES_PER_SECOND

    @property
    def languages(self) -> tuple[str, ...]:
        """Codes of the languages that it speaks."""
        return self.components.model.languages

    @property
    def voices(self) -> VoiceLibrary:
        """The voices that are kept on this machine and those of the bundled model, by name."""
        return VoiceLibrary(self._home / "voices", BUILT_IN)

    def say(
        self,
        text: str,
        voice: Voice | str | None = None,
        *,
        progress: Progress = lambda _n_tokens: None,
        voices: Mapping[str, Voice] | None = None,
        **options: Unpack[OptionFields],
    ) -> Audio:
        """Speak a text: all that `stream` gives, in one piece."""
        speech = self.stream(text, voice, progress=progress, voices=voices, **options)
        sound = np.concatenate([chunk.samples for chunk in speech])
        plan, timings = self.components.plan, speech.timings
        return Audio(
            sound, speech.tokens, speech.is_complete, timings, speech.unspoken, plan,
            speech.language,
        )  # fmt: skip

    def stream(
        self,
        text: str | Iterable[str],
        voice: Voice | str | None = None,
        *,
        progress: Progress = lambda _n_tokens: None,
        resume: Checkpoint | None = None,
        voices: Mapping[str, Voice] | None = None,
        **options: Unpack[OptionFields],
    ) -> SpeechStream:
        """Speak a text, or one that is still being written, and hand out sound as it is made.

        A voice is an object or the name of one of `voices`. `options` are fields of `Options`; else
        the model's own hold. How soon there is sound is the plan's choice: without windows, each
        part of the text comes at once. With a checkpoint of the same request, `resume` gives what
        would have come behind it. `voices`: those that mark-up may name, instead of the library's.
        """
        wanted, speech = self.defaults.updated(options), SpeechState()
        own = self._voice(voice)

        def speak(text: str | Iterable[str], wanted: Options) -> Iterator[AudioChunk | None]:
            script = self._script(text, own, voices, wanted, speech, progress, resume)
            return self._synthesizer.speak(script, speech)

        if wanted.language == DETECT:
            return SpeechStream(speech, self._detect(text, wanted, speech, speak))
        return SpeechStream(speech, speak(text, wanted))

    def _detect(
        self,
        text: str | Iterable[str],
        wanted: Options,
        speech: SpeechState,
        speak: Callable[[str | Iterable[str], Options], Iterator[AudioChunk | None]],
    ) -> Iterator[AudioChunk | None]:
        """Find out the language first, in a step of its own."""
        sample = text
        if not isinstance(text, str):
            pieces, held = iter(text), ""
            for known in beginning(pieces):
                held = known or ""
                if known is None:
                    yield None
            text, sample = chain((held,), pieces), arriving_sample(held)
        spoken = self.components.tokenizer.languages
        fallback = None if self.defaults.language == DETECT else self.defaults.language
        speech.language = detect_language(str(sample), spoken, fallback)
        yield from speak(text, replace(wanted, language=speech.language.code))

    def _script(
        self,
        text: str | Iterable[str],
        own: Voice,
        voices: Mapping[str, Voice] | None,
        wanted: Options,
        speech: SpeechState,
        progress: Progress,
        resume: Checkpoint | None,
    ) -> Script:
        tokenizer, is_single = self.components.tokenizer, self.components.spec.is_single
        code = check_language(wanted.language, tokenizer.languages)
        markup = Markup(code, tokenizer.typed_tokens, speech.note_ignored)
        parts = text_parts(text, tokenizer, wanted, markup, speech.unspoken, is_single=is_single)
        voice_of = self._cast(own, markup, voices)
        pauses = pause_samples(wanted, limited_speed(wanted.speed, own.speed))
        least = [pauses[kind] for kind in Break if kind]
        if markup.least_pause_ms is not None:
            least.append(n_samples(markup.least_pause_ms))
        trims, state = self.components.plan.trims_silence, resume.joined if resume else None
        joiner = PartJoiner(min(least), trims_start=trims, state=state)
        return Script(parts, voice_of, wanted, pauses, joiner, progress, resume)

    def _cast(
        self, own: Voice, markup: Markup, voices: Mapping[str, Voice] | None
    ) -> Callable[[TextPart], Voice]:
        """Voices that a known text names are looked up now, those of an arriving one later."""
        known: dict[str, Voice] = {}

        def named(name: str) -> Voice:
            if name not in known:
                known[name] = self._voice(name) if voices is None else voices[name]
            return known[name]

        for name in markup.voices:
            named(name)
        return lambda part: own if part.voice is None else named(part.voice)

    def astream(
        self,
        text: str | Iterable[str] | AsyncIterable[str],
        voice: Voice | str | None = None,
        **options: Unpack[OptionFields],
    ) -> AsyncSpeechStream:
        """`stream` for asyncio; closing it early cancels the speech."""
        return AsyncSpeechStream(text, lambda text: self.stream(text, voice, **options))

    def _voice(self, wanted: Voice | str | None) -> Voice:
        if isinstance(wanted, str) and wanted != DEFAULT_VOICE:
            return self.voices.load(wanted, self.components.model.family)[0]
        return self.components.voice if wanted is None or isinstance(wanted, str) else wanted

    def step_tokens(self, numbers: Collection[int]) -> list[TokenEvent]:
        """One more token of each of these requests: see `SpeechStream.token_number`."""
        return self._synthesizer.step_tokens(numbers)

    def decode_windows(self, jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        """Windows of several requests: see `SpeechStream.window_job`."""
        return self._synthesizer.decode_windows(jobs)

    def clone(
        self,
        recording: str | Path | bytes,
        *,
        force: bool = False,
        keep_loudness: bool = False,
        encoders: Encoders | None = None,
    ) -> ClonedVoice:
        """A voice from a few seconds of somebody speaking; its `report` is on the recording.

        What is too short or no speech is refused unless `force` is set. The voice is made as loud
        as the model's own unless `keep_loudness` is set. Without `encoders`, the networks for it
        are loaded now and let go afterwards.
        """
        return self.cloner.clone(
            recording, force=force, keep_loudness=keep_loudness, encoders=encoders
        )

    def forget(self, voice: Voice) -> None:
        """Drop everything that was computed from a voice; a request with it computes it anew."""
        self._synthesizer.forget(voice)
