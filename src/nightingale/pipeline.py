"""Text in, sound out: the only file that knows the order of the rooms.

`Nightingale` holds the weights of one model and nothing of any request. Plans without windows
render an utterance at once, numerically the upstream model; the others window after window.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.async_stream import AsyncSpeechStream
from nightingale.audio.clip import Audio
from nightingale.audio.pauses import PartJoiner, fade_out
from nightingale.cloning import ClonedVoice, VoiceCloner
from nightingale.core import (
    END_OF_SPEECH,
    N_SPEECH_CODES,
    SAMPLES_PER_SECOND,
    SAMPLES_PER_TOKEN,
    START_OF_SPEECH,
    AudioChunk,
    FlowPrompt,
    OptionFields,
    Options,
    Plan,
    Voice,
)
from nightingale.errors import SpeechError
from nightingale.flow.window import FlowState
from nightingale.loader import REFERENCE, Components, load_components
from nightingale.nn import amx
from nightingale.nn.lru import ByteLimitedLRU
from nightingale.nn.noise import derive_seed
from nightingale.settings import Settings
from nightingale.speech import Checkpoint, SpeechStream
from nightingale.t3.guard import Guard
from nightingale.t3.prefix import Prefixes
from nightingale.text.readable import Reader
from nightingale.text.split import EAGER, SINGLE, WHOLE, TextPart, split, split_stream
from nightingale.text.structure import Break, pause_samples
from nightingale.text.words import rest, spans
from nightingale.vocoder.model import fade_in
from nightingale.voice import level
from nightingale.voice.clone import Encoders
from nightingale.voice.library import VoiceLibrary
from nightingale.windowing import TokenWindow, WaveDecoder, WaveState, token_windows

# torch's libraries keep a kernel for every shape that they met, 1,024 of each kind by
# default: half a gigabyte after an hour of speech with AMX. Without it more than 512 are met;
# to keep them all took no more memory there, and to make them again costs time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512" if amx.is_available() else "1024")
os.environ.setdefault("LRU_CACHE_CAPACITY", "128")

Progress = Callable[[int], None]  # how many speech tokens there are so far

_MAX_PROMPT_BYTES = 2**31  # bytes of recordings that were rendered
_MAX_ATTEMPTS = 2  # more, to say what was not said
_RETRIES = 2**40  # their seeds are far from those of later parts
_SILENCE = [4299] * 3  # tokens that sound like nothing: Turbo and Nano end with them


def _content(prompt: FlowPrompt) -> tuple[NDArray[np.generic], ...]:
    return prompt.tokens, prompt.mel, prompt.xvector


class Nightingale:
    """One model, ready to speak. Requests from several threads wait for each other."""

    def __init__(self, components: Components, home: Path | None = None) -> None:
        self.components, self._home = components, home or Settings.read(os.environ).home
        self.defaults = Options.of(components.model.family)
        self._prefixes = Prefixes(components.t3.prefix)
        self._prompt_states: ByteLimitedLRU[FlowState] = ByteLimitedLRU(_MAX_PROMPT_BYTES)
        self._drops_last = components.model.family == "multilingual"
        self.knows_sentences = components.model.family == "fledgling"  # and nothing longer
        sound = components.flow, components.vocoder, components.watermarker
        self._decoder = WaveDecoder(*sound, components.plan.vocoder_lookahead, self._drops_last)
        self._lock = threading.Lock()
        self.cloner = VoiceCloner(components, self.say, self._lock)

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        *,
        home: Path | None = None,
        device: str = "auto",
        decoder: str | None = None,
        watermark: bool = True,
        plan: Plan | str = REFERENCE,
    ) -> Nightingale:
        """A pulled model by its name, a folder of released files, or the best that is here."""
        home = home or Settings.read(os.environ).home
        chosen = Plan.named(plan) if isinstance(plan, str) else plan
        return cls(load_components(model, home, device, decoder, watermark, chosen), home)

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
        **options: Unpack[OptionFields],
    ) -> Audio:
        """Speak a text: all that `stream` gives, in one piece."""
        speech = self.stream(text, voice, progress=progress, **options)
        sound = np.concatenate([chunk.samples for chunk in speech])
        unspoken = tuple(speech.unspoken)
        return Audio(sound, tuple(speech.tokens), speech.is_complete, speech.timings, unspoken)

    def stream(
        self,
        text: str | Iterable[str],
        voice: Voice | str | None = None,
        *,
        progress: Progress = lambda _n_tokens: None,
        resume: Checkpoint | None = None,
        **options: Unpack[OptionFields],
    ) -> SpeechStream:
        """Speak a text, or one that is still being written, and hand out sound as it is made.

        A voice is an object or the name of one of `voices`. `options` are fields of `Options`; else
        the model's own hold. How soon there is sound is the plan's choice: without windows, each
        part of the text comes at once. With a checkpoint of the same request, `resume` gives what
        would have come behind it.
        """
        wanted, speech = self.defaults.updated(options), SpeechStream()
        whole, coming = (SINGLE, SINGLE) if self.knows_sentences else (WHOLE, EAGER)
        reader = Reader(self.components.tokenizer, wanted.language, speech.unspoken)
        parts = (
            reader.whole(text, lambda text: split(text, whole))
            if isinstance(text, str)
            else reader.arriving(text, lambda pieces: split_stream(pieces, coming))
        )
        speech.steps = self._speak(parts, self._voice(voice), wanted, progress, speech, resume)
        return speech

    def astream(
        self,
        text: str | Iterable[str] | AsyncIterable[str],
        voice: Voice | str | None = None,
        **options: Unpack[OptionFields],
    ) -> AsyncSpeechStream:
        """`stream` for asyncio; closing it early cancels the speech."""
        return AsyncSpeechStream(text, lambda text: self.stream(text, voice, **options))

    def _voice(self, wanted: Voice | str | None) -> Voice:
        if isinstance(wanted, str):
            return self.voices.load(wanted, self.components.model.family)[0]
        return wanted or self.components.voice

    def _speak(
        self,
        parts: Iterable[TextPart | None],
        voice: Voice,
        options: Options,
        progress: Progress,
        speech: SpeechStream,
        resume: Checkpoint | None,
    ) -> Iterator[AudioChunk | None]:
        pauses = pause_samples(options)
        joiner = PartJoiner(
            min(pauses[kind] for kind in Break if kind),
            trims_start=self.components.plan.trims_silence,
            state=resume.joined if resume else None,
        )
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
            number, text, before = number + 1, part.text, part.before
            if resume is not None and number < resume.n_parts:
                speech.n_characters += len(part.text) + 1
                continue
            for attempt in range(1 + _MAX_ATTEMPTS):
                seed = derive_seed(
                    derive_seed(options.seed, number), attempt and _RETRIES + attempt
                )
                wanted = replace(options, seed=seed)
                pause = joiner.start_part(pauses[before])
                if len(pause):
                    yield AudioChunk(pause)
                yield from self._speak_part(text, voice, wanted, progress, speech, joiner)
                text, speech.left, before = speech.left, "", Break.CLAUSE
                if not text:
                    break
            if speech.is_cancelled:
                return
            if text:
                speech.unsaid.append(text)
                speech.is_complete = False
            speech.n_characters += len(part.text) + 1
            spoken = speech.n_tokens, speech.is_complete, tuple(speech.unsaid)
            speech.checkpoint = Checkpoint(number + 1, joiner.state, *spoken)
        rest = joiner.finish()
        if len(rest):
            yield AudioChunk(rest)

    def _speak_part(
        self,
        text: str,
        voice: Voice,
        options: Options,
        progress: Progress,
        speech: SpeechStream,
        joiner: PartJoiner,
    ) -> Iterator[AudioChunk | None]:
        speech.clock.restart()
        tokens = self._tokens(text, voice, options, speech)
        state: WaveState | None = None
        for window in token_windows(
            self._codes(tokens, progress, speech), self.components.plan.window_sizes
        ):
            speech.clock.lap("tokens_ms")
            samples = None
            if window is not None and not speech.is_cancelled:
                with self._turn():
                    samples, state = self._sound(window, state, voice, options.seed, speech)
            if speech.is_cancelled:
                return
            if samples is not None and window is not None and window.is_last:
                samples = fade_out(samples)
            ready = samples if samples is None else joiner.feed(samples)
            if joiner.is_settled:
                speech.settle_part(joiner.part_start)
            yield AudioChunk(ready) if ready is not None and len(ready) else None
            speech.clock.restart()

    def _tokens(
        self, text: str, voice: Voice, options: Options, speech: SpeechStream
    ) -> Iterator[int]:
        """Between two of them, others may have the model."""
        with self._turn():
            text_tokens = self.components.tokenizer.encode(text, options.language)
            speech.clock.lap("text_ms")
            prefix = self._prefixes.get(voice.t3, options.exaggeration)
            heads = self.components.t3.config.alignment_heads
            guard = Guard(heads, len(text_tokens)) if options.guard and heads else None
            steps = self.components.t3.decode(text_tokens, prefix, options, guard=guard)
            words = spans(text, text_tokens, self.components.tokenizer.space)
            if guard is not None:
                speech.open_part(words, guard.places)
        while not speech.is_cancelled:
            with self._turn():
                token = next(steps, None)
            if token is None:
                break
            if token == END_OF_SPEECH and guard is not None and not guard.is_said:
                speech.left = rest(words, guard.places[-1])
                speech.is_complete &= bool(speech.left)  # what is not known cannot be said again
            yield token

    def _codes(
        self, tokens: Iterator[int], progress: Progress, speech: SpeechStream
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
        if not self.components.t3.config.is_llama:
            speech.tokens += _SILENCE
            yield from _SILENCE

    def _sound(
        self,
        window: TokenWindow,
        state: WaveState | None,
        voice: Voice,
        seed: int,
        speech: SpeechStream,
    ) -> tuple[NDArray[np.float32], WaveState | None]:
        if not self.components.plan.window_sizes:
            return self._whole(window, voice, seed, speech), None
        decoder = self._decoder
        state = state or decoder.start(self._prompt_state(voice.flow), seed)
        mel, flow_state = decoder.render(state, window, voice.flow, seed)
        speech.clock.lap("mel_ms")
        samples, vocoder = decoder.vocode(state, window, mel, seed)
        sound = level.amplified(samples.cpu().numpy(), voice.gain_db)
        speech.clock.lap("samples_ms")
        watermarked, watermark = decoder.watermark(state, window, sound)
        speech.clock.lap("watermark_ms")
        return watermarked, WaveState(flow_state, vocoder, watermark, state.n_samples + len(sound))

    def _whole(
        self, window: TokenWindow, voice: Voice, seed: int, speech: SpeechStream
    ) -> NDArray[np.float32]:
        """The utterance at once: numerically the upstream model."""
        codes = torch.tensor(window.tokens, device=self.components.placement.device)
        mel = self._mel(codes, voice.flow, seed)  # (80, M)
        speech.clock.lap("mel_ms")
        samples = self._trim(fade_in(self.components.vocoder.vocode(mel, seed)), len(codes))
        sound = level.amplified(samples.cpu().numpy(), voice.gain_db)
        speech.clock.lap("samples_ms")
        if self.components.watermarker is not None:
            sound = self.components.watermarker.apply(sound)
        speech.clock.lap("watermark_ms")
        return sound

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """The model is one request's at a time, for one step."""
        with self._lock, torch.inference_mode():
            yield

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
            self._prefixes.forget(voice.t3)
            self._prompt_states.forget(_content(voice.flow))

    def render(self, codes: Sequence[int], prompt: FlowPrompt, seed: int) -> Tensor:
        """(80, M): the mel of given speech tokens, whole or in windows, as the plan has it."""
        with self._turn():
            if not self.components.plan.window_sizes:
                return self._mel(torch.tensor(codes), prompt, seed)
            state, mels = self._decoder.start(self._prompt_state(prompt), seed), []
            for window in filter(None, token_windows(codes, self.components.plan.window_sizes)):
                mel, flow_state = self._decoder.render(state, window, prompt, seed)
                state = replace(state, flow_state=flow_state)
                mels.append(mel)
            return torch.cat(mels, dim=1)

    def _mel(self, codes: Tensor, prompt: FlowPrompt, seed: int) -> Tensor:
        flow = self.components.flow
        if not self.components.plan.prompt_cache:
            return flow.render(codes, prompt, seed)
        return flow.render_chunk(codes, prompt, self._prompt_state(prompt), seed)[0]

    def _prompt_state(self, prompt: FlowPrompt) -> FlowState:
        """The voice's recording, rendered: once, and then cached."""
        flow = self.components.flow
        return self._prompt_states.get(_content(prompt), lambda: flow.prefill(prompt))

    def _trim(self, samples: Tensor, n_codes: int) -> Tensor:
        """Multilingual's last token is an artefact: its sound is cut off."""
        if not self._drops_last:
            return samples
        return samples[: max(1, n_codes - 1) * SAMPLES_PER_TOKEN]
