"""Speech tokens of the fast teacher for texts/wide.jsonl: `python -m training.token_corpus`.

Keeps the tokens, by the tokenizer that ships, and after which of them each word ends, known from
the teacher's phoneme durations. No audio is kept: it can be synthesized again, bit for bit. Resumes
where it ended.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import typer
from numpy.typing import NDArray

from nightingale.audio.resample import resample
from nightingale.core import SAMPLES_PER_TOKEN
from nightingale.voice.encoders import load_encoders
from nightingale.voice.speech_tokenizer import SpeechTokenizer
from nightingale.weights.manifest import BUNDLE
from training import speakers
from training.clips import RATE, BadClipError, count_phonemes, edges, tidy
from training.texts import Text, read
from training.work import work

NAME = "heart"
DURATIONS = "/Clip_output_0"  # of hibari's graph: frames of each phoneme
HOP = 600  # samples of such a frame
PAUSE_S = 0.12  # between sentences, beside what is left of their own silence
LEFT_S = 0.1, 0.15  # of the silence before and behind each sentence
MIN_TOKENS = 8
LONGEST_S = 16.0

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class SpokenText:
    """One text, as the voice said it."""

    phonemes: str
    samples: NDArray[np.int16]
    ends: list[int]  # of each word of the phonemes, in samples


class FastTeacher:
    """hibari, which also says how long each phoneme takes."""

    def __init__(self, assets: Path, speed: float = 1.0) -> None:
        from hibari import Hibari, dsp

        self._speed = speed
        self._hibari = Hibari(model=str(with_durations(assets / "hibari" / "hibari.onnx")))
        self._synth = dsp.synth

    def phonemes(self, text: str) -> list[str]:
        """Of each sentence. Without its last period: "no." would be read as an abbreviation."""
        found = []
        for sentence in self._hibari.split_sentences(text):
            mark = sentence[-1] if sentence[-1] in ".?!" else ""
            said = " ".join(self._hibari.phonemize(sentence.removesuffix(".")))
            found.append(said if said.endswith(mark) else said + mark)
        return found

    def say(self, text: str) -> SpokenText:
        """Sentence by sentence; BadClipError if it came out wrong."""
        parts: list[Samples] = []
        ends: list[int] = []
        sentences = self.phonemes(text)
        at = 0
        for number, phonemes in enumerate(sentences):
            samples, word_ends = self._sentence(phonemes)
            first, last = edges(samples)
            first = max(0, first - round(LEFT_S[0] * RATE))
            pause = np.zeros(round(PAUSE_S * RATE) if number else 0, np.float32)
            at += len(pause)
            part = samples[first : last + round(LEFT_S[1] * RATE)]
            ends += [at + end - first for end in word_ends]
            parts += [pause, part]
            at += len(part)
        if not parts:
            raise BadClipError("silent")
        whole = np.concatenate(parts)
        begin = edges(whole)[0] - round(LEFT_S[0] * RATE)
        said = " ".join(sentences)
        tidied = tidy(whole, count_phonemes(said), LONGEST_S)
        return SpokenText(said, tidied, [end - begin for end in ends])

    def _sentence(self, phonemes: str) -> tuple[Samples, list[int]]:
        known = [sound for sound in phonemes if sound in self._hibari.vocab]
        if not known:
            raise BadClipError("silent")
        ids = np.asarray([self._hibari.ids(phonemes)], np.int64)
        feed = {"ids": ids, "speed": np.full(1, self._speed, np.float32)}
        *out, durations = self._hibari.sess.run(None, feed)
        random = np.random.default_rng(zlib.crc32(phonemes.encode()))
        over = np.cumsum(durations.ravel())[1:-1] * HOP
        ends: list[int] = []
        end = 0
        for sound, sample in zip(known, over, strict=True):
            if sound == " ":
                ends.append(end)
            elif sound.isalpha():
                end = int(sample)
        return self._synth(*(o[0] for o in out), random), [*ends, end]


def with_durations(file: Path) -> Path:
    """The same network, with the durations as one more output."""
    import onnx

    target = file.with_name("hibari-durations.onnx")
    if not target.is_file():
        model = onnx.load(file)
        model.graph.output.append(onnx.ValueInfoProto(name=DURATIONS))
        onnx.save(model, target)
    return target


@torch.inference_mode()
def tokens_of(tokenizer: SpeechTokenizer, samples: NDArray[np.int16]) -> list[int]:
    """Whole tokens only."""
    n = len(samples) // SAMPLES_PER_TOKEN
    wave = torch.from_numpy(samples[: n * SAMPLES_PER_TOKEN].astype(np.float32) / 32768)
    tokens: list[int] = tokenizer.encode(resample(wave, RATE, 16_000)).tolist()
    return tokens


def to_json_line(text: Text, said: SpokenText, tokens: list[int]) -> str:
    """As it is kept. Without ends, if words of text and phonemes are not one to one: the teacher
    reads "George Clark" as "George the zeroth", and a few more so."""
    ends = [min(len(tokens), max(1, round(end / SAMPLES_PER_TOKEN))) for end in said.ends]
    row = {
        "id": text.id, "kind": text.kind, "text": text.text, "phonemes": said.phonemes,
        "tokens": tokens, "ends": ends if len(ends) == len(text.text.split()) else [],
    }  # fmt: skip
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n"


def resume_point(file: Path) -> tuple[int, str | None]:
    """How many tokens there are, and the last text's id. A line that was cut off is dropped."""
    file.touch()
    n_tokens, last, end = 0, None, 0
    with file.open("rb") as lines:
        for line in lines:
            if not line.endswith(b"\n"):
                break
            row = json.loads(line)
            n_tokens, last, end = n_tokens + len(row["tokens"]), row["id"], end + len(line)
    os.truncate(file, end)
    return n_tokens, last


def main(
    what: str = "wide",
    hours: float = 200.0,
    minutes: float | None = None,
    reverse: bool = False,
    kind: str = "",
) -> None:
    """All of texts/WHAT.jsonl (of one kind), until so many hours are spoken, or so many minutes.

    A second process, on a second core, can begin at the end (--reverse) and has its own file.
    """
    torch.set_num_threads(1)
    texts, file = read(work() / "texts" / f"{what}.jsonl"), work() / what / f"{NAME}.jsonl"
    if kind:
        texts, file = [t for t in texts if t.kind == kind], file.parent / kind / file.name
        if not texts:
            raise typer.BadParameter(f"no text of {what}.jsonl is of the kind {kind!r}")
    if reverse:
        texts, file = texts[::-1], file.parent / "reverse" / file.name
    file.parent.mkdir(parents=True, exist_ok=True)
    n_tokens, last = resume_point(file)
    start = 1 + next((i for i, text in enumerate(texts) if text.id == last), -1)
    voice, tokenizer = FastTeacher(work() / "assets"), load_tokenizer()
    if NAME not in speakers.vectors_by_voice():
        embed(voice, texts)
    bad: Counter[str] = Counter()
    began, n_before = time.monotonic(), n_tokens
    with file.open("a", encoding="utf-8") as out:
        for number, text in enumerate(texts[start:]):
            try:
                said = voice.say(text.text)
                tokens = tokens_of(tokenizer, said.samples)
                if len(tokens) < MIN_TOKENS:
                    raise BadClipError("short")
                out.write(to_json_line(text, said, tokens))
                n_tokens += len(tokens)
            except BadClipError as reason:
                bad[str(reason)] += 1
            passed = time.monotonic() - began
            if number % 100 == 99:
                out.flush()
            if number % 500 == 499:
                rate = (n_tokens - n_before) / 25 / passed
                done = f"{start + number + 1}/{len(texts)} texts, {n_tokens / 90_000:.2f} h"
                now = time.strftime("%T")
                print(f"{now} {done}, {rate:.0f} x real time, {dict(bad)}", flush=True)
            if n_tokens / 90_000 >= hours or (minutes and passed > 60 * minutes):
                break


def embed(voice: FastTeacher, texts: list[Text]) -> None:
    """What the speaker encoder says of the voice, from a few seconds of each of many texts."""
    encoder, found = speakers.speaker_encoder(), list[Samples]()
    n = round(speakers.SECONDS * 16_000)
    for text in texts:
        if len(text.text.split()) > 18 and len(found) < speakers.N_CLIPS:
            with contextlib.suppress(BadClipError):
                said = torch.from_numpy(voice.say(text.text).samples.astype(np.float32) / 32768)
                found.append(encoder.embed(resample(said, RATE, 16_000)[:n]).numpy())
    speakers.VECTORS.mkdir(parents=True, exist_ok=True)
    np.save(speakers.VECTORS / f"{NAME}.npy", np.stack(found))


@functools.cache
def load_tokenizer() -> SpeechTokenizer:
    """The one that ships: its tokens stay what they are, whatever is trained anew."""
    return load_encoders(BUNDLE / "s3gen.safetensors", BUNDLE / "ve.safetensors").tokenizer


if __name__ == "__main__":
    typer.run(main)
