"""Choose what is spoken: `python -m training.texts` writes work()/texts/sentences.jsonl.

One line for each text: id, text, kind and split (train, held_out, short). Sentences that people
wrote come first, patterns fill up, drills see to it that common words are not rare. The same every
time.
"""

from __future__ import annotations

import gzip
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Set
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from rich.console import Console

from training.grammar import everyday
from training.shorts import shorts
from training.sources import read_all, read_more
from training.work import work

SEED = 20
N_HELD_OUT = 250
N_SHORT = 100
N_COMMON = 6000  # words that must each be heard
N_TIMES = 3  # so often
N_KNOWN = 25_000  # a sentence with a word rarer than this is not used
MORE = {"phrase": 26_000, "everyday": 5000}  # at most, of what only the fast voice says
QUOTA = {"book": 3200, "speech": 2300, "example": 4300, "chat": 500, "everyday": 3300}

_PLAIN = re.compile(r"[A-Z][A-Za-z .,?!'-]*[.?!]")
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_ABBREVIATION = re.compile(
    r"\b(?:Dr|Mr|Mrs|Ms|St|Jr|Sr|vs|etc|Prof|Gen|Capt|No|[A-Z])\.\s|\b[A-Z]{2,}\b|\.\w|\.\."
)
_RUDE = re.compile(
    r"fuck|shit|bitch|nigg|negro|whore|slut|rape|rapist|porn|faggot|cunt|bastard|nazi|suicid|penis|vagina|"
    r"breasts|prostitut|damn|genocid|jew|muslim|homosexual|\bsex|\bass\b|\bkill|murder|\bgay\b|\bnude|naked"
)
_MISSPELT = {"thats"}


@dataclass(frozen=True, slots=True)
class Text:
    """One text to be spoken."""

    id: str
    text: str
    kind: str
    split: str


def words_of(text: str) -> list[str]:
    """Lower-case words; the parts of a hyphened word count each."""
    return _WORD.findall(text.lower())


def clean(text: str) -> str | None:
    """The sentence in plain letters and . , ? ! ' - or nothing if it cannot be."""
    text = text.replace("’", "'").replace("‘", "'").replace("--", ", ").replace(";", ",")
    text = re.sub(r"\s+([.,?!])", r"\1", " ".join(text.split()))
    if not _PLAIN.fullmatch(text) or _ABBREVIATION.search(text) or _RUDE.search(text.lower()):
        return None
    if re.search(r"(?:^|\s)['-]|['-](?:\s|$)|[.,?!]{2}|[.?!].*[.?!]|,\S", text):
        return None  # quotes, loose dashes, more than one sentence
    return text


def fits(text: str, known: frozenset[str]) -> bool:
    """3 to 25 words, all of them known."""
    words = words_of(text)
    bare = (word.removesuffix("'s") for word in words)
    return 3 <= len(words) <= 25 and all(
        word in known or w in known for word, w in zip(words, bare, strict=True)
    )


def pairs_of(text: str) -> frozenset[tuple[str, str]]:
    """Neighbouring words, with the edges as words too."""
    words = ["", *words_of(text), ""]
    return frozenset(pairwise(words))


class Near:
    """Finds texts that say almost the same as one of a fixed set."""

    def __init__(self, texts: Iterable[str]) -> None:
        self.sets = [pairs_of(text) for text in texts]
        self.where = defaultdict(list)
        for i, pairs in enumerate(self.sets):
            for pair in pairs:
                self.where[pair].append(i)

    def __contains__(self, text: str) -> bool:
        pairs = pairs_of(text)
        shared = Counter(i for pair in pairs for i in self.where.get(pair, ()))
        return any(n > 0.6 * min(len(pairs), len(self.sets[i])) for i, n in shared.items())


def choose(candidates: dict[str, list[str]], common: frozenset[str]) -> list[tuple[str, str]]:
    """(kind, text) by quota; sentences with a common word not yet chosen often enough go first."""
    count: Counter[str] = Counter()
    chosen: list[tuple[str, str]] = []
    for kind, texts in candidates.items():
        room = QUOTA[kind]
        later = []
        for text in texts:
            words = words_of(text)
            if room and any(word in common and count[word] < N_TIMES for word in words):
                count.update(words)
                chosen.append((kind, text))
                room -= 1
            else:
                later.append(text)
        for text in later[:room]:
            count.update(words_of(text))
            chosen.append((kind, text))
    return chosen


def drills(texts: Iterable[str], common: dict[str, str], rng: random.Random) -> list[str]:
    """Sentences of the common words (as written) that the texts do not yet hold often enough."""
    count = Counter(word for text in texts for word in words_of(text))
    rare = [written for word, written in common.items() for _ in range(N_TIMES - count[word])]
    rng.shuffle(rare)
    frames = (
        "The words are {}, {}, {}, and {}.",
        "She wrote {}, {}, {}, and {} on the board.",
        "Please repeat after me, {}, {}, {}, {}.",
        "Is it {}, {}, {}, or {}?",
        "First came {}, then {}, and then {} and {}.",
        "He could spell {} and {}, but not {} or {}.",
    )
    rare += rare[: -len(rare) % 4]
    return [rng.choice(frames).format(*rare[i : i + 4]) for i in range(0, len(rare), 4)]


def common_words(known: list[str], entries: Set[str]) -> dict[str, str]:
    """The most common words that a pronouncing dictionary has, each as it is written there."""
    out = {}
    for word in known[:N_COMMON]:
        if re.fullmatch(r"[a-z]{2,}(?:'[a-z]+)?", word) and re.search(r"[aeiouy]", word):
            written = word if word in entries else word.capitalize()
            if written in entries and not _RUDE.search(word):
                out[word] = written
    return out


def inflected_words(known: list[str], entries: Set[str]) -> dict[str, str]:
    """The most common words that it has not, but whose stem it has: claims, walked, adding."""
    out = {}
    for word in known[:N_COMMON]:
        found = re.fullmatch(r"([a-z]{2,}?)(?:s|es|ed|d|ing)", word)
        if not found or word in entries or word in _MISSPELT or _RUDE.search(word):
            continue
        stem = found[1]
        doubled = stem[:-1] if stem[-1] == stem[-2] else stem
        if not entries.isdisjoint((stem, stem + "e", doubled, re.sub("i$", "y", stem))):
            out[word] = word
    return out


def compose(
    sources: Iterable[tuple[str, str]],
    known: list[str],
    common: dict[str, str],
    inflected: dict[str, str],
) -> list[Text]:
    """All texts, with their splits."""
    rng = random.Random(SEED)
    known_set = frozenset(known)
    by_kind: dict[str, dict[str, str]] = {kind: {} for kind in QUOTA}
    for kind, raw in (*sources, *(("everyday", text) for text in everyday(60, rng))):
        text = clean(raw)
        if text and (kind == "everyday" or fits(text, known_set)):
            by_kind[kind].setdefault(" ".join(words_of(text)), text)
    candidates = {kind: list(texts.values()) for kind, texts in by_kind.items()}
    for texts in candidates.values():
        rng.shuffle(texts)
    held: list[tuple[str, str]] = []
    total = sum(min(QUOTA[kind], len(texts)) for kind, texts in candidates.items())
    for kind, texts in candidates.items():
        share = round(N_HELD_OUT * min(QUOTA[kind], len(texts)) / total)
        if kind == "everyday":  # the last one takes what rounding left
            share = N_HELD_OUT - len(held)
        apart: list[str] = []
        for text in texts:
            if len(apart) < share and text not in Near(apart):
                apart.append(text)
        held += [(kind, text) for text in apart]
    short = [text for text in shorts(rng) if len(words_of(text)) <= 4]
    held_short = [text for text in short if len(text.split()) <= 3][:N_SHORT]
    taken = {" ".join(words_of(text)) for text in (*held_short, *(text for _, text in held))}
    near = Near(text for _, text in held)
    candidates = {
        kind: [t for t in texts if t not in near and " ".join(words_of(t)) not in taken]
        for kind, texts in candidates.items()
    }
    train = choose(candidates, frozenset(common))
    train += [("short", text) for text in short if " ".join(words_of(text)) not in taken]
    train += [("drill", text) for text in drills((t for _, t in train), common, rng)]
    rng.shuffle(train)
    train += [("drill", text) for text in drills((t for _, t in train), inflected, rng)]
    rows = [("train", *row) for row in train] + [("held_out", *row) for row in held]
    rows += [("short", "short", text) for text in held_short]
    count: Counter[str] = Counter()
    out = []
    for split, kind, text in rows:
        out.append(Text(f"{split}-{count[split]:05d}", text, kind, split))
        count[split] += 1
    return out


def compose_more(
    sources: Iterable[tuple[str, str]], known: list[str], texts: list[Text]
) -> list[Text]:
    """All that is left, for the voice that can say a lot; nothing near a held-out sentence."""
    rng, known_set = random.Random(SEED + 1), frozenset(known)
    taken = {" ".join(words_of(text.text)) for text in texts}
    near = Near(text.text for text in texts if text.split == "held_out")
    by_kind: dict[str, list[str]] = defaultdict(list)
    for kind, raw in (*sources, *(("everyday", text) for text in everyday(400, rng))):
        text = clean(raw)
        said = " ".join(words_of(text)) if text else ""
        if text and said not in taken and (kind == "everyday" or fits(text, known_set)):
            taken.add(said)
            by_kind[kind].append(text)
    for listed in by_kind.values():
        rng.shuffle(listed)
    rows = [(kind, text) for kind, listed in by_kind.items() for text in listed[: MORE.get(kind)]]
    rows = [(kind, text) for kind, text in rows if text not in near]
    rng.shuffle(rows)
    return [Text(f"more-{i:05d}", text, kind, "train") for i, (kind, text) in enumerate(rows)]


def read(file: Path) -> list[Text]:
    """The texts that `main` wrote."""
    with file.open(encoding="utf-8") as lines:
        return [Text(**json.loads(line)) for line in lines]


def main() -> None:
    from wordfreq import top_n_list

    assets = work() / "assets"
    known = [word for word in top_n_list("en", N_KNOWN) if word.isascii()]
    with gzip.open(
        assets / "hibari" / "lexicon_us_gold.json.gz", "rt", encoding="utf-8"
    ) as lexicon:
        entries = frozenset(json.load(lexicon))
    common, inflected = common_words(known, entries), inflected_words(known, entries)
    texts = compose(read_all(assets / "texts"), known, common, inflected)
    more = compose_more(read_more(assets / "texts"), known, texts)
    folder = work() / "texts"
    folder.mkdir(parents=True, exist_ok=True)
    for name, listed in (("sentences", texts), ("more", more)):
        lines = "".join(json.dumps(asdict(text)) + "\n" for text in listed)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    console = Console(stderr=True)
    texts += more
    for (split, kind), n in sorted(Counter((t.split, t.kind) for t in texts).items()):
        console.print(f"{split:9} {kind:9} {n:6}")
    n_words = [len(words_of(text.text)) for text in texts]
    console.print(f"{len(texts)} texts, {sum(n_words)} words, {sum(n_words) / len(texts):.1f} each")


if __name__ == "__main__":
    main()
