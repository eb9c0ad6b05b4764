"""Parts of a text in, sound out: tokens, windows, watermark and pauses, in steps.

Between two steps, others may have the model. `Synthesizer` holds nothing of any request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.pauses import PartJoiner, fade_out
from nightingale.audio.streaming_watermark import WatermarkStream
from nightingale.backends.base import DecodedWindow, TokenEvent, TokenRequest, WaveState, WindowJob
from nightingale.core import (
    END_OF_SPEECH,
    N_SPEECH_CODES,
    SAMPLES_PER_SECOND,
    START_OF_SPEECH,
    AudioChunk,
    Options,
    Voice,
)
from nightingale.errors import SpeechError
from nightingale.loader import Components
from nightingale.noise import derive_seed
from nightingale.speaking_rate import limited_speed
from nightingale.speech import Checkpoint, SpeechState
from nightingale.text.split import TextPart
from nightingale.text.structure import Break
from nightingale.text.words import rest, spans
from nightingale.token_log import TokenLog
from nightingale.voice import level
from nightingale.windowing import token_windows

Progress = Callable[[int], None]  # how many speech tokens there are so far

_MAX_ATTEMPTS = 2  # more, to say what was not said
_RETRIES = 2**40  # their seeds are far from those of later parts


@dataclass(frozen=True, slots=True)
class Script:
    """What is spoken: the parts of one text, by whom, and the pauses between them."""

    parts: Iterable[TextPart | None]  # None: nothing has come yet
    voice_of: Callable[[TextPart], Voice]
    options: Options
    pauses: Mapping[Break, int]
    joiner: PartJoiner
    progress: Progress
    resume: Checkpoint | None = None


class Synthesizer:
    """Speaks with the parts of one model."""

    def __init__(self, components: Components) -> None:
        self.components = components
        self._engine, self._decoder = components.loaded.token_engine, components.loaded.wave_decoder
        self.lock = threading.Lock()  # the model is one request's at a time, for one step

    def speak(self, script: Script, speech: SpeechState) -> Iterator[AudioChunk | None]:
        """The sound of a text, with None where a step gave none."""
        joiner, options, resume = script.joiner, script.options, script.resume
        number, speech.n_samples = -1, joiner.n_samples
        if resume is not None:
            speech.n_tokens, speech.is_complete = resume.n_tokens, resume.is_complete
            speech.unsaid += resume.unsaid
        for part in script.parts:
            if speech.is_cancelled:
                return
            if part is None:
                yield None
                continue
            if not part.text:
                yield AudioChunk(joiner.end_pause(n_samples(part.pause_ms or 0)), is_pause=True)
                continue
            number += 1
            if resume is not None and number < resume.n_parts:
                speech.n_characters += len(part.written) + 1
                continue
            log = resume.log if resume is not None and number == resume.n_parts else None
            known = speech.open_log(number, f"{options.seed} {part.written}", log)
            language = part.language or options.language
            wanted = replace(options, seed=derive_seed(options.seed, number), language=language)
            yield from self._say_part(part, known, wanted, script, speech)
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
        options: Options,
        script: Script,
        speech: SpeechState,
    ) -> Iterator[AudioChunk | None]:
        """Behind its pause, and what was left out of it once more."""
        left = part
        for attempt in range(1 + _MAX_ATTEMPTS):
            speech.known = known.attempt(attempt)
            seed = derive_seed(options.seed, attempt and _RETRIES + attempt)
            is_asked = left.pause_ms is not None
            n_pause = n_samples(left.pause_ms or 0) if is_asked else script.pauses[left.before]
            first = speech.known.first_audible
            pause = script.joiner.start_part(n_pause, first, is_asked=is_asked)
            if len(pause):
                yield AudioChunk(pause, is_pause=True)
            yield from self._speak_part(left, replace(options, seed=seed), script, speech)
            if speech.left is None:
                return
            left, speech.left = speech.left, None
        speech.unsaid.append(left.written)
        speech.is_complete = False

    def _speak_part(
        self, part: TextPart, options: Options, script: Script, speech: SpeechState
    ) -> Iterator[AudioChunk | None]:
        voice, joiner = script.voice_of(part), script.joiner
        speech.clock.restart()
        tokens = self._codes(self._tokens(part, voice, options, speech), script.progress, speech)
        state: WaveState | None = None
        speech.speed = limited_speed(options.speed, voice.speed, part.speed)
        sizes = self.components.plan.window_sizes
        watermark = WatermarkStream(self.components.watermarker, is_whole=not sizes)
        for window in token_windows(tokens, sizes):
            speech.clock.lap("tokens_ms")
            samples = None
            if window is not None:  # a step of its own: others may need the model sooner
                with self.lock:
                    state = state or self._decoder.start(voice.flow, options.seed, speech.speed)
                speech.clock.lap("mel_ms")
                speech.window_job = WindowJob(window, state)
                yield None
                speech.clock.restart()
            if window is not None and not speech.is_cancelled:
                samples, state = self._decode(voice, speech)
                with self.lock:
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
        with self.lock:
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
        with self.lock:
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
        with self.lock:
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

    def forget(self, voice: Voice) -> None:
        """Drop everything that was computed from a voice."""
        with self.lock:
            self._engine.forget(voice.t3)
            self._decoder.forget(voice.flow)


def n_samples(ms: int) -> int:
    """Of so many milliseconds."""
    return ms * SAMPLES_PER_SECOND // 1000
