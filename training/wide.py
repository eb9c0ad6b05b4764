"""What T3 alone learns from: `python -m training.wide` writes texts/wide.jsonl, some 200 hours.

All that the sources hold in plain words, exercises, joined sentences, and drills until each of the
20,000 most frequent words is there five times. In random order: any first part is a sample of the
whole. texts/develop.jsonl is for choices; nothing near it or near a held-out sentence is learned.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from rich.console import Console

from training import generated_texts
from training.grammar import everyday
from training.sources import read_more, read_old_sotu
from training.texts import _RUDE, SEED, Near, Text, clean, read, words_of
from training.work import work

N_KNOWN = 60_000  # a sentence with a word rarer than this is not used
N_COMMON = 20_000  # words that must each be heard ...
N_TIMES = 5  # ... so often
LONGEST = 34  # words of a text: about twelve seconds
BUDGET = {  # words of each kind, at most
    "speech": 520_000, "phrase": 520_000, "example": 200_000, "book": 100_000, "chat": 40_000,
    "everyday": 260_000, "number": 110_000, "letter": 60_000, "repeat": 40_000, "list": 90_000,
    "question": 40_000, "short": 60_000, "paragraph": 420_000,
}  # fmt: skip
N_DEVELOP = {"sentence": 200, "short": 100, "paragraph": 60}
_FRAMES = (
    "The words are {}, {}, {}, and {}.", "She wrote {}, {}, {}, and {} on the board.",
    "Please repeat after me, {}, {}, {}, {}.", "Is it {}, {}, {}, or {}?",
    "First came {}, then {}, and then {} and {}.", "He could spell {} and {}, but not {} or {}.",
    "{} and {} are words, and so are {} and {}.", "Look up {}, {}, {} and {} in the dictionary.",
)  # fmt: skip


def known_words(root: Path) -> tuple[frozenset[str], dict[str, str]]:
    """All words that a text may hold, and the common ones as they are written."""
    from wordfreq import top_n_list

    listed = [w for w in top_n_list("en", N_KNOWN) if re.fullmatch(r"[a-z]+(?:'[a-z]+)?", w)]
    spoken, capital = dictionary(root)
    said = [w for w in listed if w in spoken and not _RUDE.search(w)]
    common = [w for w in said[:N_COMMON] if len(w) > 1 or w in "ai"]
    return frozenset(said), {w: w.capitalize() if w in capital else w for w in common}


def dictionary(root: Path) -> tuple[frozenset[str], frozenset[str]]:
    """Words that have a pronunciation, and those of them that the teacher only knows as names."""
    import gzip

    lines = (root / "cmudict" / "cmudict.dict").read_text(encoding="utf-8").splitlines()
    words = {line.split(" ", 1)[0].partition("(")[0] for line in lines}
    with gzip.open(root / "hibari" / "lexicon_us_gold.json.gz", "rt", encoding="utf-8") as file:
        entries = json.load(file)
    names = {w.lower() for w in entries if w[0].isupper() and w.lower() not in entries}
    return frozenset(words), frozenset(names)


def fits(text: str, known: frozenset[str]) -> bool:
    """Not too long, and all words are known."""
    words = words_of(text)
    return 0 < len(words) <= LONGEST and all(
        word in known or word.removesuffix("'s") in known for word in words
    )


def _key(text: str) -> str:
    return " ".join(words_of(text))


class Choice:
    """Texts by kind, none twice, none near what is held out, no kind beyond its budget."""

    def __init__(self, near: Near, taken: Iterable[str], known: frozenset[str]) -> None:
        self._near, self._taken, self._known = near, set(taken), known
        self.n_words: Counter[str] = Counter()
        self.rows: list[tuple[str, str]] = []

    def add(self, kind: str, text: str, *, checked: bool = False) -> None:
        key = _key(text)
        if key in self._taken or not (checked or fits(text, self._known)) or text in self._near:
            return
        self._taken.add(key)
        self.rows.append((kind, text))
        self.n_words[kind] += len(words_of(text))

    def fill(self, kind: str, texts: Iterator[str]) -> None:
        """Until the budget is used up, or nothing new comes."""
        for text in islice(texts, 40 * BUDGET[kind]):
            if self.n_words[kind] >= BUDGET[kind]:
                return
            self.add(kind, text, checked=kind in ("letter", "number"))


def joined(sentences: list[str], rng: random.Random) -> Iterator[str]:
    """Two or three sentences as one text: neighbours, or any."""
    while True:
        at, n = rng.randrange(len(sentences) - 3), rng.choice((2, 2, 3))
        parts = sentences[at : at + n] if rng.random() < 0.5 else rng.sample(sentences, n)
        text = " ".join(parts)
        if len(words_of(text)) <= LONGEST:
            yield text


def sources(root: Path, known: frozenset[str], rng: random.Random) -> dict[str, list[str]]:
    """Plain sentences of every kind, each once."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    old = (("speech", text) for text in read_old_sotu(root / "texts" / "sotu"))
    made = (("everyday", text) for text in everyday(400, rng))
    for kind, raw in (*read_more(root / "texts"), *old, *made):
        text = clean(raw)
        if text and fits(text, known):
            found[kind].setdefault(_key(text), text)
    return {kind: list(texts.values()) for kind, texts in found.items()}


def develop(by_kind: dict[str, list[str]], held: list[str], rng: random.Random) -> list[Text]:
    """What choices are made on."""
    apart = Near(held)
    plain = [t for kind in ("book", "speech", "example", "chat", "everyday") for t in by_kind[kind]]
    plain = [t for t in plain if 4 <= len(words_of(t)) <= 25]
    makers = {
        "sentence": iter(rng.sample(plain, len(plain))),
        "short": generated_texts.bits(plain, rng),
        "paragraph": joined(plain, rng),
    }
    out: list[Text] = []
    for kind, made in makers.items():
        fresh = (t for t in made if t not in apart)
        rows = list(dict.fromkeys(islice(fresh, 2 * N_DEVELOP[kind])))[: N_DEVELOP[kind]]
        out += [Text(f"{kind}-{i:03d}", text, kind, "develop") for i, text in enumerate(rows)]
    return out


def drills(rows: list[tuple[str, str]], common: dict[str, str], rng: random.Random) -> list[str]:
    """Sentences of the common words that the texts do not hold often enough."""
    count = Counter(word for _, text in rows for word in words_of(text))
    rare = [w for word, w in common.items() for _ in range(N_TIMES - count[word])]
    rng.shuffle(rare)
    rare += rare[: -len(rare) % 4]
    out = [rng.choice(_FRAMES).format(*rare[i : i + 4]) for i in range(0, len(rare), 4)]
    return [text[0].upper() + text[1:] for text in out]


def compose(
    root: Path, known: frozenset[str], common: dict[str, str], texts: list[Text]
) -> tuple[list[Text], list[Text]]:
    """What is learned, and what choices are made on."""
    rng = random.Random(SEED + 2)
    by_kind = sources(root, known, rng)
    held = [text.text for text in texts if text.split != "train"]
    chosen_on = develop(by_kind, held, rng)
    apart = [*held, *(text.text for text in chosen_on)]
    near = Near(text for text in apart if len(words_of(text)) > 4)
    choice = Choice(near, map(_key, apart), known)
    plain = [text for listed in by_kind.values() for text in listed]
    vocabulary = list(common.values())
    makers: dict[str, Iterator[str]] = {
        kind: iter(rng.sample(listed, len(listed))) for kind, listed in by_kind.items()
    }
    makers |= {
        "number": generated_texts.numbers(rng),
        "letter": generated_texts.letters(vocabulary, rng),
        "repeat": generated_texts.repeats(vocabulary[:4000], rng),
        "list": generated_texts.lists(vocabulary, rng),
        "question": generated_texts.questions(vocabulary, rng),
        "short": generated_texts.bits(plain, rng),
        "paragraph": joined([t for t in plain if len(words_of(t)) <= 16], rng),
    }
    for kind, made in makers.items():
        choice.fill(kind, made)
    for text in drills(choice.rows, common, rng):
        choice.add("drill", text, checked=True)
    rng.shuffle(choice.rows)
    rows = choice.rows
    learned = [Text(f"wide-{i:06d}", text, kind, "train") for i, (kind, text) in enumerate(rows)]
    return learned, chosen_on


def main() -> None:
    assets, folder = work() / "assets", work() / "texts"
    known, common = known_words(assets)
    learned, chosen_on = compose(assets, known, common, read(folder / "sentences.jsonl"))
    for name, listed in (("wide", learned), ("develop", chosen_on)):
        lines = "".join(json.dumps(asdict(text)) + "\n" for text in listed)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    console, count, heard = Console(stderr=True), Counter(t.kind for t in learned), Counter[str]()
    n_words: Counter[str] = Counter()
    for text in learned:
        words = words_of(text.text)
        n_words[text.kind] += len(words)
        heard.update(words)
    for kind, n in sorted(count.items()):
        console.print(f"{kind:9} {n:7} texts {n_words[kind]:8} words")
    enough = sum(heard[word] >= N_TIMES for word in common)
    console.print(f"{len(learned)} texts, {n_words.total()} words")
    console.print(f"{enough} of {len(common)} common words {N_TIMES} times or more")


if __name__ == "__main__":
    main()
