"""Evaluate a packed model on held-out sentences: word error rate, speaker similarity, DistillMOS.

Systems: the teacher, its speech rebuilt from tokens, the model with either decoder, short texts,
cloned voices, and espeak-ng. Keeps audio, every clip's scores, and a table.
"""

from __future__ import annotations

import io
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile
import torch
import typer
from rich.console import Console

from nightingale.audio import files
from nightingale.backends.torch.vocoder.model import fade_in
from nightingale.core import SAMPLES_PER_SECOND, Voice
from nightingale.measure import texts
from nightingale.measure.quality import Clip, Judge, Report
from nightingale.measure.report import compare, worst
from nightingale.measure.stages import torch_stages
from nightingale.measure.texts import Kind
from nightingale.pipeline import Nightingale
from training import corpus
from training.corpus import Utterance
from training.token_corpus import load_tokenizer, tokens_of
from training.work import work

SYSTEMS = ("teacher", "rebuilt", "standard", "meanflow", "short", "clones", "espeak")
MAIN_VOICE = "heart"
N_ENROLLED = 5
PROMPT_SECONDS = 8.0
HEARD = work() / "heard"


def held_out(kind: Kind, n: int) -> list[Utterance]:
    """Evenly spread over all kinds of texts, as the teacher says them."""
    spoken = {u.text: u for u in corpus.read(MAIN_VOICE) if u.split != "train"}
    return [spoken[text] for text in texts.read(kind, n)]


class Synthesizer:
    """Makes the clips of each system."""

    def __init__(self, folder: Path, n: int) -> None:
        self._folder, self._n = folder, n
        self._engines: dict[str, Nightingale] = {}
        self.spoken_s = self.worked_s = 0.0

    def clips(self, system: str) -> Iterator[Clip]:
        if system == "clones":
            yield from self._clones()
            return
        for seed, u in enumerate(held_out("short" if system == "short" else "held_out", self._n)):
            if system == "teacher":
                yield Clip(u.samples(), u.text, u.voice)
            elif system == "rebuilt":
                yield Clip(self._rebuild(u, seed), u.text, u.voice)
            elif system == "espeak":
                yield Clip(_espeak(u.text), u.text, u.voice)
            else:
                yield self._say(u.text, MAIN_VOICE, seed, meanflow=system == "meanflow")

    def _say(
        self, text: str, name: str, seed: int, *, meanflow: bool = False, voice: Voice | None = None
    ) -> Clip:
        tts = self.tts("meanflow" if meanflow else "standard")
        start = time.perf_counter()
        audio = tts.say(text, voice, seed=seed, max_tokens=400)
        self.worked_s += time.perf_counter() - start
        self.spoken_s += audio.seconds
        return Clip(audio.samples, text, name)

    def _rebuild(self, utterance: Utterance, seed: int) -> files.Wave:
        components = self.tts("standard").components
        stages = torch_stages(components)
        samples = np.round(utterance.samples() * 32767).astype(np.int16)
        codes = torch.tensor(tokens_of(load_tokenizer(), samples))
        with torch.inference_mode():
            mel = stages.flow.render(codes, components.voice.flow, seed)
            return fade_in(stages.vocoder.vocode(mel, seed)).numpy()

    def _clones(self) -> Iterator[Clip]:
        sentences = held_out("held_out", self._n)
        voices = [voice for voice in corpus.cast() if voice != MAIN_VOICE]
        for number, name in enumerate(voices):
            voice = self.clone(name)
            for seed, u in enumerate(sentences[number :: len(voices)]):
                yield self._say(u.text, name, seed, voice=voice)

    def clone(self, name: str) -> Voice:
        """From the last few seconds of a voice, which enrolment does not hear."""
        parts: list[files.Wave] = []
        for utterance in reversed(corpus.read(name)):
            parts.append(utterance.samples())
            if sum(map(len, parts)) > PROMPT_SECONDS * SAMPLES_PER_SECOND:
                break
        recording = io.BytesIO()
        soundfile.write(recording, np.concatenate(parts), SAMPLES_PER_SECOND, format="WAV")
        return self.tts("standard").clone(recording.getvalue())

    def tts(self, decoder: str) -> Nightingale:
        if decoder not in self._engines:
            self._engines[decoder] = Nightingale.load(
                self._folder, home=work() / "home", device="cpu", decoder=decoder
            )
        return self._engines[decoder]


def _espeak(text: str) -> files.Wave:
    command = ["espeak-ng", "-v", "en-us", "--stdout", text]
    said = subprocess.run(command, capture_output=True, check=True).stdout
    samples, rate_hz = soundfile.read(io.BytesIO(said), dtype="float32")
    return files.resample(samples, rate_hz, SAMPLES_PER_SECOND)


def enrolled() -> Iterator[Clip]:
    """What the teachers' voices are known by."""
    for voice in corpus.cast():
        yield from (Clip(u.samples(), u.text, voice) for u in long_ones(voice)[:N_ENROLLED])


def long_ones(voice: str) -> list[Utterance]:
    return [u for u in corpus.read(voice) if u.n_tokens > 60]


def main(
    folder: Path,
    n: int = 200,
    systems: str = ",".join(SYSTEMS),
    out: Path = HEARD,
    threads: int = 2,
    words_only: bool = False,
) -> None:
    """Word error rate, speaker similarity and DistillMOS of a packed model."""
    torch.set_num_threads(threads)
    assets = work() / "assets"
    judge = Judge.load(assets, threads)
    if words_only:
        judge = Judge(judge.transcriber)
    voices = judge.enroll(enrolled())
    reports: dict[str, Report] = {}
    facts: dict[str, object] = {}
    for system in systems.split(","):
        synthesizer, clips = Synthesizer(folder, n), []
        (out / system).mkdir(parents=True, exist_ok=True)
        for number, clip in enumerate(synthesizer.clips(system)):
            clips.append(clip)
            if number < 40:
                soundfile.write(out / system / f"{number:03}.wav", clip.samples, clip.rate_hz)
        reports[system] = judge.score(clips, voices)
        rtf = synthesizer.worked_s / synthesizer.spoken_s if synthesizer.spoken_s else None
        facts[system] = {**reports[system].facts(), "rtf": rtf}
        (out / "facts.json").write_text(json.dumps(facts, indent=1))
        Console().print(compare(reports), f"real-time factor {rtf:.3f}" if rtf else "")
        Console(width=180).print(worst(reports[system], 8))


if __name__ == "__main__":
    typer.run(main)
