"""How long it takes to cut texts of forty kinds, and to normalize dense ones: linear, and bounded.

    python benchmarks/text_time.py
    PYTHONPATH=OLD/src python benchmarks/text_time.py --characters 4000    # another version
    python benchmarks/text_time.py --normalization --characters 1000000 --json result.jsonl

For each kind: seconds of processor time for 10,000 and for 20,000 characters, by the sentence and
as a whole, the best of seven rounds. Fails if twice the text takes more than 2.5 times as long
(times under 2 ms are not compared), or if 20,000 characters take more than the bar.

Normalization: texts of figures and signs and little else, in six languages: seconds of processor
time for a million characters, the best of `--rounds`. The bar is 2 s; the table names all above it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from nightingale.text.normalization import normalize_text
from nightingale.text.split import SINGLE, WHOLE, SplitPolicy, split

MAX_RATIO, MAX_S, N_CHARACTERS = 2.5, 0.05, 20_000
_COMPARED_S, _GIVE_UP_S, _N_ROUNDS = 2e-3, 2.0, 7

PROSE = (
    "The old man looked at the sea; it was calm. \u201cAre you sure?\u201d he asked. "
    "Mr. Smith said yes!\n"
)
REPEATED = {
    "closing quotes": '"', "curly quotes": "\u201d", "apostrophes": "'", "guillemets": "\u00bb",
    "opening brackets": "(", "closing brackets": ")", "pairs of brackets": "()", "braces": "{}",
    "full stops": ".", "stops and spaces": ". ", "stops and quotes": '."', "ellipses": "\u2026",
    "questions": "!?", "commas": ",", "semicolons": "; ", "dashes": "\u2014", "hyphens": "-",
    "spaces": " ", "tabs": "\t", "newlines": "\n", "paragraphs": "\n\n", "form feeds": "a\f",
    "letters": "x", "words": "word ", "digits": "12345", "amounts": "$1,000.50 ",
    "abbreviations": "Mr. ", "initials": "U.S.A.", "numbered items": "1. ", "bullets": "- \n",
    "headings": "#", "han": "\u4f60\u597d\u3002\u300d", "kana": "\u3042\u3001",
    "arabic": "\u0645\u0631\u062d\u0628\u0627\u061f ", "emoji": "\U0001f389",
    "devanagari": "\u0928\u092e\u0938\u094d\u0924\u0947\u0964 ", "joiners": "\u200d",
    "combining marks": "a\u0301\u0302\u0303", "direction marks": "\u202e", "prose": PROSE,
}  # fmt: skip

# Normalization: repeated, each is a text in which nearly everything is read otherwise.
DENSE = (
    "1", "A", "1 ", "AB ", "a.", "@", "1.", "$", "[", "a@", "12:45 ", "$1,000.50 ", "25 kg ",
    "3rd ", "3. ", "1-", "10-20 ", "-1 ", "#1 ", "x1", "a 1 ", "1 000 ", "Mr. ", "BBC ", "½",
    "a@b.com ", "3.4.2024 ", "2024-05-03 ", "3/4/2024 ", "May 3rd, 2024 ", "3. Mai 2024 ",
    "3 мая 2024 ", "2024年5月3日", "$12.50", "12,50 € ", "5 USD ", "€1", "+49 30 1234567 ",
    "555-123-4567 ", "(555) 123-4567 ", "www.x.org/a-1 ", "https://e.com?q=1 ", "x.com ",
    "Louis XIV ", "XIV ", "1/2 ", "2¾ ", "1–", "25kg ", "3°C ", "5% ", "5%", "BCD FGH ", "HTML ",
    "я1", "学1", "a١ ", "٣٤ ", "४", "３ ", "1.2.3 ", "192.168.0.1 ", "1'000 ", "12h30 ", "No. 5 ",
    "№5 ", "[1] ", "<1>", "+1 ", "(1) ", '"1" ', "1\n", "1\u00a0000 ", "e.g. ", "z. B. ", "т.е. ",
    "第3回", "3번째 ", "1:2:3 ", "--1", "a1b2c3 ", "1.5e10 ", "$$1", "_1", "1_", "1,", "1:", "1/",
    "1+", "1%-", "a-", "a.com", "I II ", "wwww.", "1€-",
)  # fmt: skip
LANGUAGES = ("en", "de", "ru", "ar", "zh", "ja")
MAX_MB_S = 2.0  # for a million characters


def dense_texts(n_characters: int, seed: int = 0) -> dict[str, str]:
    """One unit over and over, and drawn ones of which nothing is met twice."""
    rng = random.Random(seed)

    def drawn(make: Any) -> str:
        parts, length = [], 0
        while length < n_characters:
            parts.append(make())
            length += len(parts[-1])
        return "".join(parts)[:n_characters]

    signs = "0123456789.,:/-–%€$@ abIVXhkg½'°"
    return {
        **{unit: (unit * n_characters)[:n_characters] for unit in DENSE},
        "random numbers": drawn(lambda: f"{rng.randrange(10 ** rng.randint(1, 6))} "),
        "random characters": "".join(rng.choices(signs, k=n_characters)),
        "random digits": "".join(rng.choices("0123456789 .-", k=n_characters)),
        "random dates": drawn(
            lambda: f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.{rng.randint(1000, 2100)} "
        ),
        "random money": drawn(lambda: f"${rng.randint(1, 9999)}.{rng.randint(10, 99)} "),
        "random measures": drawn(lambda: f"{rng.randint(1, 999)} kg "),
        "random times": drawn(lambda: f"{rng.randint(0, 23)}:{rng.randint(10, 59)} "),
        "random ranges": drawn(lambda: f"{rng.randint(1, 99)}-{rng.randint(10, 999)} "),
        "random addresses": drawn(lambda: f"w{rng.randint(1, 99)}.com/{rng.randint(10, 999)} "),
        "random units": drawn(lambda: rng.choice(DENSE)),
    }


def dense_rows(
    n_characters: int,
    languages: Sequence[str] = LANGUAGES,
    max_mb_s: float = MAX_MB_S,
    n_rounds: int = 1,
) -> list[dict[str, Any]]:
    """A row for each language and text."""
    rows, rounds = [], [dense_texts(n_characters, seed) for seed in range(n_rounds)]  # drawn anew
    for language in languages:
        normalize_text("1 kg, 1/2 a@b.com 3. Mai XIV", language)  # patterns are built
        for kind in rounds[0]:
            best = float("inf")
            for texts in rounds:
                begun = time.process_time()
                normalize_text(texts[kind], language)
                best = min(best, time.process_time() - begun)
            mb_s = best * 1e6 / n_characters
            rows.append({"language": language, "kind": kind, "mb_s": round(mb_s, 2),
                         "ok": mb_s <= max_mb_s})  # fmt: skip
    return rows


def kinds(n_characters: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Forty kinds that repeat themselves, and mixtures of them."""
    for kind, unit in REPEATED.items():
        yield kind, (unit * n_characters)[: n_characters - 1] + "a"
    units = list(REPEATED.values())
    for number in range(4):
        generator = random.Random(f"{seed} {number}")  # half a text is the beginning of the whole
        some = generator.sample(units, 4)
        text = "".join(generator.choices(some, k=n_characters))
        yield f"mixture {number}", text[:n_characters]


def seconds(text: str, policy: SplitPolicy) -> float:
    begun = time.process_time()
    split(text, policy)
    return time.process_time() - begun


def measure(n_characters: int = N_CHARACTERS, max_s: float = MAX_S) -> list[dict[str, Any]]:
    """A row for each kind and policy.

    The best of a few rounds over all kinds: whatever else runs on this machine only adds to a time,
    and a processor that is slow for seconds is slow for one round.
    """
    texts, halves = dict(kinds(n_characters)), dict(kinds(n_characters // 2))
    policies = {"single": SINGLE, "whole": WHOLE}
    best = {(kind, name): [float("inf"), float("inf")] for kind in texts for name in policies}
    for _ in range(_N_ROUNDS):
        for (kind, name), times in best.items():
            for at, text in enumerate((halves[kind], texts[kind])):
                if not any(_GIVE_UP_S < known < float("inf") for known in times):
                    times[at] = min(times[at], seconds(text, policies[name]))
    return [
        _row(kind, name, half_s, whole_s, max_s) for (kind, name), (half_s, whole_s) in best.items()
    ]


def _row(kind: str, policy: str, half_s: float, whole_s: float, max_s: float) -> dict[str, Any]:
    is_linear = whole_s < _COMPARED_S or whole_s <= MAX_RATIO * half_s
    times = {"half_ms": round(1e3 * half_s, 2), "whole_ms": round(1e3 * whole_s, 2)}
    return {"kind": kind, "policy": policy, **times, "ok": is_linear and whole_s <= max_s}


def normalization(given: argparse.Namespace) -> int:
    rows = dense_rows(given.characters, given.languages, n_rounds=given.rounds)
    by_kind: dict[str, dict[str, float]] = {}
    for row in rows:
        by_kind.setdefault(row["kind"], {})[row["language"]] = row["mb_s"]
    print(f"{'text':22}" + "".join(f"{language:>7}" for language in given.languages))
    for kind, times in sorted(by_kind.items(), key=lambda item: -max(item[1].values())):
        print(f"{kind!r:22}" + "".join(f"{times[one]:7.2f}" for one in given.languages))
    above = [row for row in rows if not row["ok"]]
    result = {"proof": "dense_text", "characters": given.characters, "rounds": given.rounds,
              "texts": len(rows), "above": len(above), "bar_s": MAX_MB_S,
              "seconds_of_a_million": by_kind,
              "slowest": max(rows, key=lambda row: float(row["mb_s"]))}  # fmt: skip
    print(json.dumps({**result, "seconds_of_a_million": "the table"}, ensure_ascii=False))
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result, ensure_ascii=False) + "\n")
    return int(bool(above))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--characters", type=int, default=N_CHARACTERS)
    parser.add_argument("--max-seconds", type=float, default=MAX_S)
    parser.add_argument("--normalization", action="store_true")
    parser.add_argument("--languages", nargs="+", default=LANGUAGES)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    return normalization(given) if given.normalization else splitting(given)


def splitting(given: argparse.Namespace) -> int:
    rows = measure(given.characters, given.max_seconds)
    for row in rows:
        if not row["ok"]:
            print("FAILED", row)
    failed = sum(not row["ok"] for row in rows)
    slowest = max(rows, key=lambda row: float(row["whole_ms"]))
    print(json.dumps({"proof": "text_time", "kinds": len(rows) // 2, "trials": len(rows),
                      "failed": failed, "slowest": slowest, "ok": not failed}))  # fmt: skip
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
