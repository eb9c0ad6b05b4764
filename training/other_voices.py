"""Other voices for T3, so that it follows the speaker: `python -m training.other_voices`.

Two kinds: Kokoro's cast, whose sound is in the corpus already (training.speak), and the fast voice
with pitch and formants shifted, which speaks slower or faster before, so that its pace stays usual.
Written as by training.token_corpus: texts, tokens and word ends, others/VOICE.jsonl.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
import typer
from numpy.typing import NDArray

from nightingale.audio.resample import resample
from training import corpus, speakers, token_corpus
from training.clips import BEFORE, RATE, BadClipError
from training.speak import CAST, Kokoro
from training.t3_dataset import OTHERS
from training.texts import Text, read
from training.token_corpus import HOP, MIN_TOKENS, NAME, FastTeacher, SpokenText
from training.work import work

SHIFTS = (0.78, 0.84, 0.9, 1.1, 1.18, 1.26)  # of all frequencies
N_TEXTS = 300  # of each shift, about 18 minutes
DURATIONS = "/encoder/Clip_output_0"  # of Kokoro's graph: frames of each phoneme


class Durations:
    """The part of Kokoro that says how long each phoneme takes: a hundredth of the whole."""

    def __init__(self, assets: Path) -> None:
        import onnx
        import onnxruntime

        whole = assets / "kokoro" / "kokoro-fp32.onnx"
        part = whole.with_name("durations.onnx")
        if not part.is_file():
            names = [given.name for given in onnx.load(whole).graph.input]
            onnx.utils.extract_model(whole, part, names, [DURATIONS], check_model=False)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(part, options)

    def __call__(self, feed: dict[str, Any]) -> NDArray[np.float32]:
        found: list[NDArray[np.float32]] = self._session.run(None, feed)
        return found[0]


def word_ends(phonemes: list[str], durations: NDArray[np.float32]) -> list[int]:
    """In samples from the first sound on. The durations have one more at either end."""
    over = np.cumsum(durations.ravel()) * HOP
    ends, end = [], 0
    for sound, sample in zip(phonemes, over[1:-1], strict=True):
        if sound == " ":
            ends.append(end)
        elif sound.isalpha():
            end = int(sample - over[0])
    return [*ends, end]


def of_kokoro(voice: str, durations: Durations) -> Iterator[tuple[Text, SpokenText]]:
    """What a voice of the cast has said for training."""
    teacher = Kokoro(work() / "assets", CAST[voice], durations, None)
    for u in corpus.read(voice):
        if u.split == "train":
            ends = word_ends(teacher.known(u.phonemes), teacher.speak(u.phonemes))
            samples = (u.samples() * 32768).astype(np.int16)
            said = SpokenText(u.phonemes, samples, [BEFORE + end for end in ends])
            yield Text(u.id, u.text, "kokoro", u.split), said


def of_shift(shift: float, texts: list[Text]) -> Iterator[tuple[Text, SpokenText]]:
    """The fast voice, all frequencies times `shift`."""
    voice = FastTeacher(work() / "assets", speed=1 / shift)
    for text in texts:
        try:
            said = voice.say(text.text)
        except BadClipError:
            continue
        samples = soxr.resample(said.samples, RATE * shift, RATE)
        yield text, SpokenText(said.phonemes, samples, [round(end / shift) for end in said.ends])


def write(name: str, spoken_texts: Iterator[tuple[Text, SpokenText]]) -> None:
    """Tokens and word ends of all, and what the speaker encoder says of the long ones."""
    file = OTHERS / f"{name}.jsonl"
    tokenizer, encoder = token_corpus.load_tokenizer(), speakers.speaker_encoder()
    vectors: list[NDArray[np.float32]] = []
    lines: list[str] = []
    n_tokens = 0
    n = round(speakers.SECONDS * 16_000)
    for text, said in spoken_texts:
        tokens = token_corpus.tokens_of(tokenizer, said.samples)
        if len(tokens) < MIN_TOKENS:
            continue
        lines.append(token_corpus.to_json_line(text, said, tokens))
        n_tokens += len(tokens)
        if len(tokens) >= 75 and len(vectors) < speakers.N_CLIPS:
            wave = torch.from_numpy(said.samples.astype(np.float32) / 32768)
            vectors.append(encoder.embed(resample(wave, RATE, 16_000)[:n]).numpy())
    np.save(speakers.VECTORS / f"{name}.npy", np.stack(vectors))
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(lines), encoding="utf-8")
    n_ends = sum('"ends":[]' not in line for line in lines)
    typer.echo(f"{name}: {len(lines)} texts, {n_ends} with ends, {n_tokens / 1500:.1f} minutes")


def main(kokoro: bool = True, shifts: bool = True, share: float = 1.0) -> None:
    """--share: of the texts of each shifted voice."""
    torch.set_num_threads(1)
    n = max(10, round(share * N_TEXTS))
    texts = read(work() / "texts" / "wide.jsonl")
    for number, shift in enumerate(SHIFTS if shifts else ()):
        own = list(islice(texts, number * n, (number + 1) * n))
        write(f"{NAME}_shifted_{round(100 * shift)}", of_shift(shift, own))
    durations = Durations(work() / "assets") if kokoro else None
    for voice, cast in CAST.items():
        if durations and not cast.held_out:
            write(voice, of_kokoro(voice, durations))


if __name__ == "__main__":
    typer.run(main)
