"""Text in, sound out: the only file that knows the order of the stages.

`Nightingale` holds the weights of one model and nothing of any request. Plans without windows
render an utterance at once, numerically the upstream model; the others window after window.
"""

from __future__ import annotations

import os
import threading
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
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from nightingale.async_stream import AsyncSpeechStream
from nightingale.audio.clip import Audio
from nightingale.audio.pauses import PartJoiner, fade_out
from nightingale.audio.streaming_watermark import WatermarkStream
from nightingale.backends.base import DecodedWindow, TokenEvent, TokenRequest, WaveState, WindowJob
from nightingale.cloning import ClonedVoice, VoiceCloner
from nightingale.core import (
    DEFAULT_VOICE,
    END_OF_SPEECH,
    N_SPEECH_CODES,
    SAMPLES_PER_SECOND,
    START_OF_SPEECH,
    AudioChunk,
    OptionFields,
    Options,
    Plan,
    Voice,
)
from nightingale.errors import SpeechError
from nightingale.loader import DEFAULT_BACKEND, REFERENCE, Components, LoadOptions, load_components
from nightingale.noise import derive_seed
from nightingale.settings import Settings
from nightingale.speech import Checkpoint, SpeechState, SpeechStream
from nightingale.text.languages import check_language
from nightingale.text.markup import Markup
from nightingale.text.parts import text_parts
from nightingale.text.split import TextPart
from nightingale.text.structure import Break, pause_samples
from nightingale.text.words import rest, spans
from nightingale.token_log import TokenLog
from nightingale.voice import level
from nightingale.voice.library import VoiceLibrary
from nightingale.windowing import token_windows

if TYPE_CHECKING:
    from nightingale.voice.clone import Encoders

Progress = Callable[[int], None]  # how many speech tokens there are so far
Cast = Callable[[TextPart], Voice]  # who speaks a part

_MAX_ATTEMPTS = 2  # more, to say what was not said
_RETRIES = 2**40  # their seeds are far from those of later parts


class Nightingale:
    """One model, ready to speak. Requests from several threads wait for each other."""

    def __init__(self, components: Components, home: Path | None = None) -> None:
        self.components, self._home = components, home or Settings.read(os.environ).home
        self.defaults = components.spec.options
        self._engine, self._decoder = components.loaded.token_engine, components.loaded.wave_decoder
        self._lock = threading.Lock()  # the model is one request's at a time, for one step
        self.cloner = VoiceCloner(components, self.say, self._lock)

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
        """The voices that are kept on this machine, by name."""
        return VoiceLibrary(self._home / "voices")

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
        return Audio(sound, speech.tokens, speech.is_complete, timings, speech.unspoken, plan)

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
        tokenizer = self.components.tokenizer
        code = check_language(wanted.language, tokenizer.languages)
        markup = Markup(code, tokenizer.typed_tokens, speech.note_ignored)
        is_single = self.components.spec.is_single
        parts = text_parts(text, tokenizer, wanted, markup, speech.unspoken, is_single=is_single)
        cast = self._cast(self._voice(voice), markup, voices)
        joiner = self._joiner(wanted, markup, resume)
        return SpeechStream(
            speech, self._speak(parts, cast, wanted, progress, speech, joiner, resume)
        )

    def _cast(self, own: Voice, markup: Markup, voices: Mapping[str, Voice] | None) -> Cast:
        """Voices that a known text names are looked up now, those of an arriving one later."""
        known: dict[str, Voice] = {}

        def named(name: str) -> Voice:
            if name not in known:
                known[name] = self._voice(name) if voices is None else voices[name]
            return known[name]

        for name in markup.voices:
            named(name)
        return lambda part: own if part.voice is None else named(part.voice)

    def _joiner(self, options: Options, markup: Markup, resume: Checkpoint | None) -> PartJoiner:
        pauses = pause_samples(options)
        least = [pauses[kind] for kind in Break if kind]
        if markup.least_pause_ms is not None:
            least.append(_samples(markup.least_pause_ms))
        return PartJoiner(
            min(least),
            trims_start=self.components.plan.trims_silence,
            state=resume.joined if resume else None,
        )

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

    def _speak(
        self,
        parts: Iterable[TextPart | None],
        cast: Cast,
        options: Options,
        progress: Progress,
        speech: SpeechState,
        joiner: PartJoiner,
        resume: Checkpoint | None,
    ) -> Iterator[AudioChunk | None]:
        number, speech.n_samples = -1, joiner.n_samples
        if resume is not None:
            speech.n_tokens, speech.is_complete = resume.n_tokens, resume.is_complete
            speech.unsaid += resume.unsaid
        for part in parts:
            if speech.is_cancelled:
                return
            if part is None:  # nothing has come yet
                yield None
                continue
            if not part.text:
                yield AudioChunk(joiner.end_pause(_samples(part.pause_ms or 0)), is_pause=True)
                continue
            number += 1
            if resume is not None and number < resume.n_parts:
                speech.n_characters += len(part.written) + 1
                continue
            log = resume.log if resume is not None and number == resume.n_parts else None
            known = speech.open_log(number, f"{options.seed} {part.written}", log)
            wanted = replace(
                options,
                seed=derive_seed(options.seed, number),
                language=part.language or options.language,
            )
            if part.speed != 1.0:
                speech.note_ignored("<prosody rate>")  # the decoder has one speed
            yield from self._say_part(part, known, cast(part), wanted, progress, speech, joiner)
            if speech.is_cancelled:
                return
            speech.n_characters += len(part.written) + 1
            spoken = speech.n_tokens, speech.is_complete, tuple(speech.unsaid)
            speech.checkpoint = Checkpoint(number + 1, joiner.state, *spoken)
        rest = joiner.finish()
        if len(rest):
            yield AudioChunk(rest)

    def _say_part(
        self,
        part: TextPart,
        known: TokenLog,
        voice: Voice,
        options: Options,
        progress: Progress,
        speech: SpeechState,
        joiner: PartJoiner,
    ) -> Iterator[AudioChunk | None]:
        """Behind its pause, and what was left out of it once more."""
        pauses, left = pause_samples(options), part
        for attempt in range(1 + _MAX_ATTEMPTS):
            speech.known = known.attempt(attempt)
            wanted = replace(
                options, seed=derive_seed(options.seed, attempt and _RETRIES + attempt)
            )
            is_asked = left.pause_ms is not None
            n_pause = _samples(left.pause_ms or 0) if is_asked else pauses[left.before]
            pause = joiner.start_part(n_pause, speech.known.first_audible, is_asked=is_asked)
            if len(pause):
                yield AudioChunk(pause, is_pause=True)
            yield from self._speak_part(left, voice, wanted, progress, speech, joiner)
            if speech.left is None:
                return
            left, speech.left = speech.left, None
        speech.unsaid.append(left.written)
        speech.is_complete = False

    def _speak_part(
        self,
        part: TextPart,
        voice: Voice,
        options: Options,
        progress: Progress,
        speech: SpeechState,
        joiner: PartJoiner,
    ) -> Iterator[AudioChunk | None]:
        speech.clock.restart()
        tokens = self._codes(self._tokens(part, voice, options, speech), progress, speech)
        state: WaveState | None = None
        sizes = self.components.plan.window_sizes
        watermark = WatermarkStream(self.components.watermarker, is_whole=not sizes)
        for window in token_windows(tokens, sizes):
            speech.clock.lap("tokens_ms")
            samples = None
            if window is not None:  # a step of its own: others may need the model sooner
                with self._lock:
                    state = state or self._decoder.start(voice.flow, options.seed)
                speech.clock.lap("mel_ms")
                speech.window_job = WindowJob(window, state)
                yield None
                speech.clock.restart()
            if window is not None and not speech.is_cancelled:
                samples, state = self._decode(voice, speech)
                with self._lock:
                    samples = watermark.next(samples, is_last=window.is_last)
                speech.clock.lap("watermark_ms")
            if speech.is_cancelled:
                return
            if samples is not None and window is not None and window.is_last:
                samples = fade_out(samples)
            ready = samples if samples is None else joiner.feed(samples)
            if joiner.is_settled:
                speech.log.attempts[-1].first_audible = joiner.first
                speech.settle_part(joiner.part_start)
            yield AudioChunk(ready) if ready is not None and len(ready) else None
            speech.clock.restart()

    def _tokens(
        self, part: TextPart, voice: Voice, options: Options, speech: SpeechState
    ) -> Iterator[int]:
        """Between two of them, others may have the model."""
        tokenizer, places = self.components.tokenizer, list[int]()
        with self._lock:
            text_tokens = tokenizer.encode(part.text, options.language)
            speech.clock.lap("text_ms")
            known, logged = speech.known, speech.log.begin()
            forced = tuple(known.tokens)
            number = self._engine.add(TokenRequest(text_tokens, voice.t3, options, forced))
        words = spans(part, text_tokens, tokenizer.space)
        try:
            while not speech.is_cancelled:
                event = speech.take_event() or self.step_tokens((number,))[0]
                if event.error is not None:
                    raise event.error
                event = logged.note(event, known)
                if event.position is not None:
                    if not places:
                        speech.open_part(words, places)
                    places.append(event.position)
                if not event.is_said:
                    speech.left = rest(part, words, places[-1])
                    # what is unknown cannot be said again
                    speech.is_complete &= speech.left is not None
                speech.token_number = None if event.is_last else number
                yield event.token
                if event.is_last:
                    break
        finally:
            speech.token_number = speech.event = None
            self._engine.cancel(number)

    def step_tokens(self, numbers: Collection[int]) -> list[TokenEvent]:
        """One more token of each of these requests: see `SpeechStream.token_number`."""
        with self._lock:
            return self._engine.step(numbers)

    def _codes(
        self, tokens: Iterator[int], progress: Progress, speech: SpeechState
    ) -> Iterator[int]:
        """The tokens that stand for sound. Upstream crashes on some of the others."""
        token, n_codes = START_OF_SPEECH, 0
        for token in tokens:
            speech.n_tokens += 1
            progress(speech.n_tokens)
            if token < N_SPEECH_CODES:
                n_codes += 1
                speech.tokens.append(token)
                yield token
        if speech.is_cancelled:
            return
        speech.is_complete &= token == END_OF_SPEECH
        if n_codes == 0:
            raise SpeechError("the model ended before it said anything; try another seed")
        speech.tokens += self.components.spec.trailing_tokens
        yield from self.components.spec.trailing_tokens

    def decode_windows(self, jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        """Windows of several requests: see `SpeechStream.window_job`."""
        with self._lock:
            return self._decoder.decode(jobs)

    def _decode(self, voice: Voice, speech: SpeechState) -> tuple[NDArray[np.float32], WaveState]:
        """The samples of the window that is due, as loud as the voice wants them."""
        job, speech.window_job = speech.window_job, None
        assert job is not None
        decoded = speech.take_decoded() or self.decode_windows([job])[0]
        speech.clock.add("mel_ms", decoded.mel_ms)
        speech.clock.add("samples_ms", decoded.samples_ms)
        speech.clock.restart()
        return level.amplified(decoded.samples, voice.gain_db), decoded.state

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
        with self._lock:
            self._engine.forget(voice.t3)
            self._decoder.forget(voice.flow)


def _samples(ms: int) -> int:
    return ms * SAMPLES_PER_SECOND // 1000
