"""Text in, sound out: the only file that knows the order of the rooms.

`Nightingale` holds the weights of one model and nothing of any request. This is the `reference`
profile: the whole utterance at once, numerically the upstream model.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nightingale.assembly import REFERENCE, Parts, assemble, load_encoders
from nightingale.audio.clip import Audio
from nightingale.audio.files import read
from nightingale.core import (
    END_OF_SPEECH,
    N_SPEECH_CODES,
    SAMPLES_PER_SECOND,
    SAMPLES_PER_TOKEN,
    FlowPrompt,
    Options,
    Plan,
    Timings,
    Voice,
)
from nightingale.errors import SpeechError
from nightingale.flow.window import Passage
from nightingale.nn.shelf import Shelf
from nightingale.settings import Settings
from nightingale.t3.prefix import Prefixes
from nightingale.vocoder.model import fade_in
from nightingale.voice.clone import clone
from nightingale.voice.examine import Report, examine

Progress = Callable[[int], None]  # how many speech tokens there are so far

_MAX_PASSAGES = 2**31  # bytes of recordings that were rendered
_SILENCE = 4299  # a token that sounds like nothing: Turbo and Nano end with three of them


class Nightingale:
    """One model, ready to speak. Requests from several threads wait for each other."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.defaults = Options.of(parts.model.family)
        self._prefixes = Prefixes(parts.t3.prefix)
        self._passages: Shelf[Passage] = Shelf(_MAX_PASSAGES)
        self._lock = threading.Lock()

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
        return cls(assemble(model, home, device, decoder, watermark, chosen))

    def say(
        self,
        text: str,
        voice: Voice | None = None,
        *,
        progress: Progress = lambda _n_tokens: None,
        **options: Any,
    ) -> Audio:
        """Speak one utterance. `options` are fields of `Options`; else the model's own hold."""
        wanted = replace(self.defaults, **options)
        voice = voice or self.parts.voice
        with self._lock, torch.inference_mode():
            clock = _Clock()
            text_tokens = self.parts.tokenizer.encode(text, wanted.language)
            text_ms = clock.lap()
            tokens = list(self._tokens(text_tokens, voice, wanted, progress))
            tokens_ms = clock.lap()
            codes = self._codes(tokens)
            mel = self._mel(codes, voice.flow, wanted.seed)  # (80, M)
            mel_ms = clock.lap()
            samples = self._trim(fade_in(self.parts.vocoder.vocode(mel, wanted.seed)), len(codes))
            sound = samples.cpu().numpy()
            samples_ms = clock.lap()
            if self.parts.watermarker is not None:
                sound = self.parts.watermarker.mark(sound)
        return Audio(
            samples=sound,
            tokens=tuple(codes.tolist()),
            is_complete=tokens[-1] == END_OF_SPEECH,
            timings=Timings(text_ms, tokens_ms, mel_ms, samples_ms, clock.lap()),
        )

    def clone(self, recording: str | Path | bytes) -> tuple[Voice, Report]:
        """A voice from a few seconds of somebody speaking, and what there is to say about them.

        The networks for it are loaded now, and let go afterwards.
        """
        wave = read(recording, SAMPLES_PER_SECOND)
        report = examine(wave, self.parts.model.family)
        with self._lock:
            return clone(wave, load_encoders(self.parts), self.parts.model.family), report

    def _tokens(
        self, text: list[int], voice: Voice, options: Options, progress: Progress
    ) -> Iterator[int]:
        prefix = self._prefixes.get(voice.t3, options.exaggeration)
        for n_tokens, token in enumerate(self.parts.t3.decode(text, prefix, options), start=1):
            progress(n_tokens)
            yield token

    def _codes(self, tokens: list[int]) -> Tensor:
        """The tokens that stand for sound. Upstream crashes on some of the others."""
        codes = [token for token in tokens if token < N_SPEECH_CODES]
        if not codes:
            raise SpeechError("the model ended before it said anything; try another seed")
        if not self.parts.t3.config.is_llama:
            codes += [_SILENCE] * 3
        return torch.tensor(codes, device=self.parts.placement.device)

    def _mel(self, codes: Tensor, prompt: FlowPrompt, seed: int) -> Tensor:
        flow = self.parts.flow
        if self.parts.plan.recording == "rendered":
            return flow.render(codes, prompt, seed)
        content = (prompt.tokens, prompt.mel, prompt.xvector)
        passage = self._passages.get(content, lambda: flow.begin(prompt))
        return flow.render_window(codes, prompt, passage, seed)[0]

    def _trim(self, samples: Tensor, n_codes: int) -> Tensor:
        """Multilingual's last token is an artefact: its sound is cut off."""
        if self.parts.model.family != "multilingual":
            return samples
        return samples[: max(1, n_codes - 1) * SAMPLES_PER_TOKEN]


class _Clock:
    """Laps in milliseconds; together they are the whole time."""

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        now = time.perf_counter()
        self._last, passed = now, now - self._last
        return 1e3 * passed
