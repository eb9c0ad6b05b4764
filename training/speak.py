"""Let the teachers speak: `python -m training.speak heart more kokoro extra`. Resumes.

Writes work()/corpus/VOICE.pcm and VOICE.jsonl (see training.clips). Every voice is synthetic. Knows
nothing of features or training.
"""

from __future__ import annotations

import fcntl
import json
import math
import random
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import typer
from rich.console import Console

from training.clips import BadClipError, Corpus, count_phonemes, tidy
from training.corpus import EXTRA, MORE
from training.texts import SEED, Text, read
from training.work import work

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]

_ROUND_S = 30.0  # each voice speaks so long before the next one does
N_HELD_OUT = 12  # held-out sentences of each Kokoro voice


@dataclass(frozen=True, slots=True)
class Cast:
    """A Kokoro voice: one style table or the mean of some, and how long it speaks."""

    styles: tuple[str, ...]
    minutes: float
    held_out: bool = False
    weights: tuple[float, ...] | None = None  # of the styles; alike if there are none


_NAMES = (
    "af_bella",
    "am_michael",
    "bf_emma",
    "bm_george",
    "am_fenrir",
    "af_kore",
    "am_puck",
    "af_aoede",
)
CAST = {
    **{name: Cast((name,), 10) for name in _NAMES},
    "mix_a": Cast(("af_nova", "bf_isabella"), 5),
    "mix_b": Cast(("am_eric", "bm_lewis"), 5),
    "mix_c": Cast(("af_jessica", "am_liam"), 5),
    "af_sarah": Cast(("af_sarah",), 3, held_out=True),
    "held_mix": Cast(("am_onyx", "bm_fable"), 3, held_out=True),
}

_HELD_OUT_STYLES = frozenset({"af_sarah", "am_onyx", "bm_fable"})
N_MIXED = 44
EXTRA_SECONDS = 24.0
_LONG = 8  # words


def extra_cast(styles: list[str]) -> dict[str, Cast]:
    """Voices for the flow, which has to follow speakers it has not heard: every style that no voice
    of the cast is, whatever its language, then weighted means of two or three at random."""
    known = sorted(set(styles) - _HELD_OUT_STYLES - {"af_heart"})
    random_ = random.Random(f"{SEED} extra")
    chosen: list[tuple[tuple[str, ...], tuple[float, ...]]]
    chosen = [((style,), (1.0,)) for style in known if style not in CAST]
    for number in range(N_MIXED):
        mixed = tuple(random_.sample(known, 2 + number % 2))
        weights = [random_.uniform(0.2, 1.0) for _ in mixed]
        chosen.append((mixed, tuple(weight / sum(weights) for weight in weights)))
    random_.shuffle(chosen)
    return {
        f"{EXTRA}{number:02}": Cast(styles, EXTRA_SECONDS / 60, weights=weights)
        for number, (styles, weights) in enumerate(chosen)
    }


class Teacher(Protocol):
    """Text to phonemes to samples."""

    def phonemes(self, text: str) -> str: ...
    def speak(self, phonemes: str) -> Samples: ...


def record(teacher: Teacher, corpus: Corpus, text: Text, split: str) -> None:
    """Speak one text into the corpus; BadClipError if it came out wrong."""
    phonemes = teacher.phonemes(text.text)
    samples = tidy(teacher.speak(phonemes), count_phonemes(phonemes))
    corpus.add(text.id, text.text, phonemes, samples, split)


class Heart:
    """hibari: one fast voice, af_heart of Kokoro in small."""

    def __init__(self, assets: Path) -> None:
        from hibari import Hibari

        self._hibari = Hibari(model=str(assets / "hibari" / "hibari.onnx"))

    def phonemes(self, text: str) -> str:
        return " ".join(self._hibari.phonemize(text))

    def speak(self, phonemes: str) -> Samples:
        seed = zlib.crc32(phonemes.encode())
        return np.asarray(self._hibari.from_phonemes(phonemes, seed=seed), np.float32)


class Kokoro:
    """One voice of Kokoro; the session is shared between voices."""

    def __init__(self, assets: Path, cast: Cast, session: Any, g2p: Any) -> None:
        folder = assets / "kokoro"
        tables = [np.fromfile(folder / "voices" / f"{s}.bin", np.float32) for s in cast.styles]
        self._styles = np.average(
            [table.reshape(-1, 256) for table in tables], axis=0, weights=cast.weights
        )
        self._vocab = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
        self._session, self._g2p = session, g2p

    def phonemes(self, text: str) -> str:
        return str(self._g2p(text))

    def known(self, phonemes: str) -> list[str]:
        """Those that are spoken; the others are left out."""
        return [sound for sound in phonemes if sound in self._vocab]

    def speak(self, phonemes: str) -> Samples:
        ids = [self._vocab[sound] for sound in self.known(phonemes)]
        feed = {
            "input_ids": np.array([[0, *ids, 0]], np.int64),
            "style": self._styles[len(ids) - 1][None].astype(np.float32),
            "speed": np.ones(1, np.float32),
        }
        return np.ravel(self._session(feed)).astype(np.float32)


def script(voice: str, texts: list[Text]) -> Iterator[tuple[Text, str]]:
    """What a Kokoro voice says: its own part of the training texts, early on some held-out ones."""
    rng = random.Random(f"{SEED} {voice}")
    held = rng.sample([text for text in texts if text.split == "held_out"], N_HELD_OUT)
    train = [text for text in texts if text.split == "train" and text.kind != "drill"]
    own = train[list(CAST).index(voice) :: len(CAST)]  # they are in random order already
    for i, text in enumerate(own):
        if held and i % 4 == 3:
            yield held.pop(), "held_out"
        yield text, "held_out" if CAST[voice].held_out else "train"


def heart(
    texts: list[Text], root: Path, console: Console, share: float, name: str = "heart"
) -> None:
    """All texts by the fast voice, or the first part of them."""
    texts = texts[: round(share * len(texts))]
    corpus = Corpus(root / "corpus", name)
    teacher = Heart(root / "assets")
    done = {u.id for u in corpus.utterances}
    bad: Counter[str] = Counter()
    for i, text in enumerate(texts):
        if text.id in done:
            continue
        try:
            record(teacher, corpus, text, text.split)
        except BadClipError as reason:
            bad[str(reason)] += 1
        if i % 500 == 0:
            console.print(
                f"{time.strftime('%T')} {name} {i}/{len(texts)} {corpus.seconds / 3600:.2f} h"
            )
    n_clips, hours = len(corpus.utterances), corpus.seconds / 3600
    console.print(f"{name}: {n_clips} clips, {hours:.2f} h, left out {dict(bad)}")


def more(_texts: list[Text], root: Path, console: Console, share: float) -> None:
    """The fast voice goes on: what only T3 learns from, under a name of its own."""
    heart(read(root / "texts" / "more.jsonl"), root, console, share, MORE)


def kokoro(texts: list[Text], root: Path, console: Console, share: float) -> None:
    """Every voice of the cast in turns: at any time all have the same part of their minutes."""
    from hibari.g2p import G2P

    run = _session(root / "assets" / "kokoro" / "kokoro-fp32.onnx")
    accents = {british: G2P(british=british) for british in (False, True)}
    n_rounds = round(max(cast.minutes for cast in CAST.values()) * 60 / _ROUND_S)
    for turn in range(1, math.ceil(share * n_rounds) + 1):
        for voice, cast in CAST.items():
            teacher = Kokoro(root / "assets", cast, run, accents[voice.startswith("b")])
            seconds = cast.minutes * 60 * turn / n_rounds
            speak_until(seconds, teacher, root, voice, script(voice, texts), console)
        console.print(f"{time.strftime('%T')} kokoro turn {turn}/{n_rounds}")


def extra(texts: list[Text], root: Path, console: Console, share: float) -> None:
    """Some seconds of each of many voices, one after the other."""
    from hibari.g2p import G2P

    run, g2p = _session(root / "assets" / "kokoro" / "kokoro-fp32.onnx"), G2P(british=False)
    styles = [file.stem for file in (root / "assets" / "kokoro" / "voices").glob("*.bin")]
    cast = extra_cast(styles)
    long = [t for t in texts if t.split == "train" and len(t.text.split()) >= _LONG]
    for number, (voice, part) in enumerate(islice(cast.items(), round(share * len(cast)))):
        teacher = Kokoro(root / "assets", part, run, g2p)
        own = ((text, text.split) for text in long[number :: len(cast)])
        speak_until(part.minutes * 60, teacher, root, voice, own, console)


def speak_until(
    seconds: float,
    teacher: Teacher,
    root: Path,
    voice: str,
    lines: Iterable[tuple[Text, str]],
    console: Console,
) -> None:
    """Go on until a voice has spoken so long. Several processes may speak: a voice is for whoever
    comes first."""
    with (root / "corpus" / f"{voice}.pcm").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        corpus, bad = Corpus(root / "corpus", voice), Counter[str]()
        done = {u.id for u in corpus.utterances}
        for text, split in lines:
            if corpus.seconds >= seconds:
                break
            if text.id not in done:
                try:
                    record(teacher, corpus, text, split)
                except BadClipError as reason:
                    bad[str(reason)] += 1
    console.print(f"{time.strftime('%T')} {voice} {corpus.seconds:.0f} s, left out {dict(bad)}")


def _session(file: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)[0]


def main(names: list[str], share: float = 1.0) -> None:
    """heart, more, kokoro, extra; --share: of texts, of each voice's minutes, of extra voices."""
    choices: dict[str, Callable[[list[Text], Path, Console, float], None]]
    choices = {"heart": heart, "more": more, "kokoro": kokoro, "extra": extra}
    if set(names) - set(choices):
        raise SystemExit(f"say which: python -m training.speak {' '.join(choices)}")
    texts = read(work() / "texts" / "sentences.jsonl")
    for name in names:
        choices[name](texts, work(), Console(stderr=True), share)


if __name__ == "__main__":
    typer.run(main)
