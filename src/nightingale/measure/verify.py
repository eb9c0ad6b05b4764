"""What a plan changes, measured against `reference` on the weights that are here.

Each stage is given the input that the reference had, so that differences do not add up: T3 is
teacher-forced with the reference's tokens, the flow renders them, the vocoder gets the reference's
mel. Then both speak freely. Words and voices are judged where judges are given. Knows nothing of
tables.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.audio.clip import Audio
from nightingale.backends.torch.t3.model import Utterance
from nightingale.core import FlowPrompt
from nightingale.measure.quality import Clip, Judge, Report
from nightingale.measure.stages import torch_stages
from nightingale.pipeline import Nightingale
from nightingale.windowing import token_windows

N_FFT, HOP = 1024, 256
QUIET_DB = 60.0  # below the loudest, where differences are not heard


@dataclass(frozen=True, slots=True)
class Sentence:
    """How one sentence differs from the reference's."""

    kl: float  # nats a token, teacher-forced
    top1: float  # share of tokens whose most likely next one is the same
    n_common: int  # tokens of the common prefix, speaking freely
    n_tokens: int  # of the reference
    mel: float  # mean distance of log-mel frames, in nepers, for the same tokens
    spectrum_db: float  # mean distance of log spectra, for the same mel
    seconds: float
    reference_seconds: float


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    """What each stage made of a sentence, given what the reference's stage before it had made."""

    logits: Tensor  # (N, V)
    mel: Tensor  # (80, M)
    sound: NDArray[np.float32]


@dataclass(slots=True)
class Verdict:
    """A plan against the reference, sentence by sentence."""

    plan: str
    sentences: list[Sentence] = field(default_factory=list)
    rtf: list[float] = field(default_factory=list)
    weights_mb: float = 0.0
    report: Report | None = None  # of judges

    def facts(self) -> dict[str, float | None]:
        """Every figure by its name; what was not judged is None."""
        rows, report = self.sentences, self.report
        words, own = (report.words, report.own_voice) if report else (None, None)
        n_tokens = sum(row.n_tokens for row in rows)
        return {
            "KL divergence of logits, nats": _mean(row.kl for row in rows),
            "top-1 agreement": _mean(row.top1 for row in rows),
            "first differing token, median": statistics.median(row.n_common for row in rows),
            "common prefix, share of tokens": sum(row.n_common for row in rows) / n_tokens,
            "log-mel distance, nepers": _mean(row.mel for row in rows),
            "log-spectral distance, dB": _mean(row.spectrum_db for row in rows),
            "duration ratio": _mean(row.seconds / row.reference_seconds for row in rows),
            "word error rate": words.value if words else None,
            "speaker similarity": own.value if own else None,
            "real-time factor": statistics.median(self.rtf),
            "weights, MB": self.weights_mb,
        }


class Verifier:
    """Holds what the reference said, so that any number of plans can be compared with it."""

    def __init__(
        self,
        reference: Nightingale,
        texts: Sequence[str],
        *,
        judge: Judge | None = None,
        max_tokens: int = 400,
        progress: Callable[[str, int], None] = lambda _plan, _n_done: None,
    ) -> None:
        self._reference = reference
        self._texts = texts
        self._judge = judge
        self._max_tokens = max_tokens
        self._progress = progress
        self._said: list[Audio] = []
        for seed in range(len(texts)):
            self._said.append(self._say(reference, seed))
            progress("speaking the reference", seed + 1)
        self._stages: dict[int, Stages] = {}
        own = [Clip(audio.samples, "", "own") for audio in self._said]
        self._voices = judge.enroll(own[: max(1, len(own) // 4)]) if judge else {}

    def verify(self, tts: Nightingale) -> Verdict:
        """Compare a model: a plan, another precision, or a planted fault."""
        verdict = Verdict(tts.components.plan.name, weights_mb=weights_mb(tts))
        audios = []
        for seed in range(len(self._texts)):
            said = self._said[seed] if tts is self._reference else self._say(tts, seed)
            verdict.sentences.append(self._compare(tts, seed, said))
            verdict.rtf.append(said.timings.total_ms / 1e3 / said.seconds)
            audios.append(said)
            self._progress(verdict.plan, seed + 1)
        if self._judge:
            verdict.report = self._score(self._judge, audios, f"judging {verdict.plan}")
        return verdict

    def spread(self, n_seeds: int) -> list[Report]:
        """Seed variance: how the reference itself is judged with other seeds."""
        assert self._judge is not None
        reports = []
        for run in range(1, n_seeds + 1):
            audios = (self._say(self._reference, i, run) for i in range(len(self._texts)))
            reports.append(self._score(self._judge, audios, f"seeds, set {run}"))
        return reports

    def _score(self, judge: Judge, audios: Iterable[Audio], step: str) -> Report:
        def clips() -> Iterator[Clip]:
            pairs = zip(audios, self._texts, strict=True)
            for n_done, (audio, text) in enumerate(pairs, start=1):
                yield Clip(audio.samples, text, "own")
                self._progress(step, n_done)

        return judge.score(clips(), self._voices)

    def _say(self, tts: Nightingale, number: int, run: int = 0) -> Audio:
        seed = number + run * len(self._texts)
        return tts.say(self._texts[number], seed=seed, max_tokens=self._max_tokens)

    def _compare(self, tts: Nightingale, seed: int, said: Audio) -> Sentence:
        wanted, text = self._said[seed], self._texts[seed]
        prompt = tts.components.voice.flow
        if seed not in self._stages:
            mel = render(self._reference, wanted.tokens, prompt, seed)
            logits = teacher_forced_logits(self._reference, text, wanted.tokens)
            self._stages[seed] = Stages(logits, mel, vocoded(self._reference, mel, seed))
        stages = ours = self._stages[seed]
        if tts is not self._reference:
            ours = Stages(
                teacher_forced_logits(tts, text, wanted.tokens),
                render(tts, wanted.tokens, prompt, seed),
                vocoded(tts, stages.mel, seed),
            )
        exact, near = stages.logits, ours.logits
        pairs = zip(said.tokens, wanted.tokens, strict=False)
        return Sentence(
            kl=divergence(exact, near),
            top1=float((exact.argmax(-1) == near.argmax(-1)).float().mean()),
            n_common=len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))),
            n_tokens=len(wanted.tokens),
            mel=float((stages.mel - ours.mel).abs().mean()),
            spectrum_db=spectral_distance_db(stages.sound, ours.sound),
            seconds=said.seconds,
            reference_seconds=wanted.seconds,
        )


@torch.inference_mode()
def teacher_forced_logits(tts: Nightingale, text: str, tokens: Sequence[int]) -> Tensor:
    """(N, V): the logits of every position, given the tokens before it."""
    components, t3 = tts.components, torch_stages(tts.components).t3
    home = t3.speech_emb.weight.device
    options = components.spec.options
    ids = components.tokenizer.encode(text, options.language)
    prefix = t3.prefix(components.voice.t3, options.exaggeration)
    utterance = Utterance(t3, ids, prefix, options, None)
    logits = [utterance.first()]
    for index, token in enumerate(tokens[:-1]):
        logits.append(utterance.next(torch.tensor(token, device=home), index))
    return torch.stack(logits).float()


def divergence(exact: Tensor, near: Tensor) -> float:
    """Mean over places of KL(exact || near), in nats."""
    log_exact, log_near = exact.log_softmax(-1), near.log_softmax(-1)
    return float((log_exact.exp() * (log_exact - log_near)).sum(-1).mean())


def render(tts: Nightingale, tokens: Sequence[int], prompt: FlowPrompt, seed: int) -> Tensor:
    """(80, M): the mel of given speech tokens, whole or in windows, as the plan has it."""
    decoder = torch_stages(tts.components).decoder
    return decoder.render(token_windows(tokens, tts.components.plan.window_sizes), prompt, seed)


def vocoded(tts: Nightingale, mel: Tensor, seed: int) -> NDArray[np.float32]:
    """The sound of a given mel."""
    samples = torch_stages(tts.components).vocoder.vocode(mel, seed)
    sound: NDArray[np.float32] = samples.cpu().numpy()
    return sound


def spectral_distance_db(one: NDArray[np.float32], other: NDArray[np.float32]) -> float:
    """Root mean square over bins, mean over frames, of the difference of log spectra."""
    spectra = [_log_spectrum_db(torch.from_numpy(samples)) for samples in (one, other)]
    floor = spectra[0].max() - QUIET_DB
    near, far = (spectrum.clamp(min=floor) for spectrum in spectra)
    return float((near - far).square().mean(0).sqrt().mean())


def _log_spectrum_db(samples: Tensor) -> Tensor:
    window = torch.hann_window(N_FFT)
    spectrum = torch.stft(samples, N_FFT, HOP, window=window, return_complex=True).abs()
    return 20 * spectrum.clamp(min=1e-7).log10()


def weights_mb(tts: Nightingale) -> float:
    """What speaking keeps in memory, without what requests add."""
    stages = torch_stages(tts.components)
    parts = (stages.t3, stages.flow, stages.vocoder)
    return sum(t.nbytes for part in parts for t in part.state_dict().values()) / 1e6


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)
