# ruff: noqa: E501, SIM905
"""Proofs of text normalization: a fuzz, the oracle ICU, and how long it takes.

    python benchmarks/normalization.py --strings 100000 --numbers 10000 \
        --json benchmarks/results/normalization.jsonl

Fuzz: strings over all scripts. None may raise; what is left untouched must cover the text exactly
with what is changed; the output must be left as it is when it is read again; text without figures
must not change. How long dense texts take: benchmarks/text_time.py. Oracle: whole numbers and years by ICU's own rules (needs pyicu-wheels).
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nightingale.text.normalization import LOCALES, normalize_text, spelling
from nightingale.text.normalization import languages as by_hand

WORDS = (
    "the Haus été ñandú дом σπίτι בית बच्चा 学校 がっこう 학교 مدرسة łódź żółw Straße ev çok mwanafunzi"
).split()
FIGURES = (
    "3 12 1984 1,234.5 1.234,5 1 234,5 12:45 10:45:30 3rd 3. 2024-05-03 3/4/2024 3.4.2024 $12.50 12,50€ "
    "€5 £3 ¥100 5% 25kg 25 kg 3°C 10-20 10–20 1/2 ½ 2¾ -5 −7 +49 30 1234567 555-123-4567 (555) 123-4567 "
    "a@b.com www.x.org/a-1 https://e.com?q=1 MP3 B2B 3D H2O 007 ٣٤ ४५ ３ XIV II HTML USD EUR #5 No. 5 "
    "1.2.3 192.168.0.1 9,99,999 12345678901234567890 5e10 1'000 12h30 37037th 99999e 654321.º 123456º 98765:e 54321-й 77777ος 第98765 12345번째 ke-99999 999,999,999,999 第3回 3번째 ke-3 [pause:500ms] "
    '<break time="5s"/> 99999999999 0 00 . , : ; / - – + € $ % ° @ № kg m'
).split(" ")
GLUE = (" ", "  ", "", "", " ", "\n", "\u00a0", ", ", ". ", "-", "(", ")", "/")
FORBIDDEN = re.compile(r"\d")


def strings(n: int, seed: int) -> list[tuple[str, str]]:
    rng, codes = random.Random(seed), sorted(LOCALES)
    made = []
    for number in range(n):
        kind = number % 4
        if kind == 0:  # any characters
            text = "".join(chr(_character(rng)) for _ in range(rng.randint(0, 30)))
        elif kind == 1:  # figures, signs and letters in a heap
            text = "".join(rng.choices("0123456789.,:/-–%€$@ abIVXhkg½'°", k=rng.randint(1, 24)))
        else:
            some = [
                rng.choice(FIGURES if rng.random() < 0.6 else WORDS)
                for _ in range(rng.randint(1, 9))
            ]
            text = "".join(word + rng.choice(GLUE) for word in some)
        made.append((codes[rng.randrange(len(codes))], text))
    return made


def _character(rng: random.Random) -> int:
    while True:
        code = rng.choice(
            (rng.randrange(0x20, 0x250), rng.randrange(0x20, 0x3000), rng.randrange(0x110000))
        )
        if not 0xD800 <= code <= 0xDFFF:
            return code


def fault(language: str, text: str) -> str:
    """What is wrong about one; nothing: ''."""
    try:
        found = normalize_text(text, language)
        pieces, spoken = found.pieces(), found.spoken
        again = normalize_text(spoken, language)
    except Exception as error:  # the proof is that there is none
        return f"raises {type(error).__name__}: {error}"
    at = 0
    for change in found.replacements:
        if not at <= change.start < change.end <= len(text):
            return "spans overlap"
        at = change.end
    kept = "".join(pieces[0::2])
    replaced = "".join(text[c.start : c.end] for c in found.replacements)
    if len(kept) + len(replaced) != len(text):
        return "spans do not cover the text"
    words = [word.written for word in found.words()]
    if "".join("".join(words).split()) != "".join(text.split()):
        return "words do not cover the text"
    if again.spoken != spoken:
        return f"is not idempotent: {spoken!r} -> {again.spoken!r}"
    return ""


def fuzz(n: int, seed: int) -> dict[str, Any]:
    faults = []
    for language, text in strings(n, seed):
        if wrong := fault(language, text):
            faults.append({"language": language, "text": text, "fault": wrong})
    return {"proof": "fuzz", "strings": n, "faults": len(faults), "examples": faults[:20]}


def unchanged(n: int, seed: int) -> dict[str, Any]:
    """Text without figures, signs, capitals in a row and abbreviations."""
    rng, changed = random.Random(seed), []
    for _ in range(n):
        language = rng.choice(sorted(LOCALES))
        words = [
            rng.choice(WORDS) + rng.choice((" ", ", ", "! ", "? ", "\n", " — ")) for _ in range(12)
        ]
        text = "".join(words)
        if normalize_text(text, language).spoken != text:
            changed.append(text)
    return {"proof": "unchanged", "strings": n, "changed": len(changed), "examples": changed[:5]}


def oracle(n: int, seed: int) -> list[dict[str, Any]]:
    """A row for each language and kind: cardinals, ordinals to a million and years to 9999."""
    icu: Any = importlib.import_module("icu")
    rows = []
    for language in sorted(LOCALES):
        rng = random.Random(f"{seed} {language}")
        large = [rng.randrange(10 ** rng.randint(4, 10)) for _ in range(max(0, n - 1000))]
        some = [*range(1, 1001), *(rng.randrange(1001, 10**6) for _ in range(max(0, n - 1000)))]
        years = rng.sample(range(1, 10_000), min(n, 9999) - 1000) if n > 1000 else []
        years = sorted({*range(1100, 2100), *years})
        formatter = icu.RuleBasedNumberFormat(icu.URBNFRuleSetTag.SPELLOUT, icu.Locale(language))
        cardinal = [r for r in (by_hand.CARDINAL.get(language), "cardinal", "numbering") if r]
        ordinal = [by_hand.ORDINAL_RULES.get(language, "ordinal")]
        rows += [
            _compared(formatter, language, "cardinal", cardinal, [*range(1000), *large]),
            _compared(formatter, language, "ordinal", ordinal, some),
            _compared(formatter, language, "year", ["numbering-year"], years),
        ]
    return rows


def _compared(
    formatter: Any, language: str, kind: str, rules: list[str], numbers: list[int]
) -> dict[str, Any]:
    names = [formatter.getRuleSetName(i) for i in range(formatter.getNumberOfRuleSetNames())]
    wanted = next((f"%spellout-{r}" for r in rules if f"%spellout-{r}" in names), None)
    row: dict[str, Any] = {"proof": "icu", "language": language, "kind": kind}
    if wanted is None:
        return {**row, "numbers": 0, "disagreements": 0, "note": "ICU has no such rules"}
    formatter.setDefaultRuleSet(wanted)
    ours: Callable[[int, str], str | None] = getattr(spelling, kind)
    wrong = []
    for number in numbers:
        theirs = formatter.format(number).replace("\u00ad", "").replace("〇", "零").strip()
        if ours(number, language) != theirs:
            wrong.append([number, ours(number, language), theirs])
    found = {"numbers": len(numbers), "disagreements": len(wrong)}
    if kind == "year":  # those that are read as years
        found["disagreements_1100_2099"] = sum(1100 <= number < 2100 for number, *_ in wrong)
    return {**row, **found, "examples": wrong[:20]}


def speed() -> dict[str, Any]:
    sentence = "On May 3rd, 2024 at 10:45 a.m. we paid $12.50 for 25 kg of apples (about 3%)."
    prose = "The old man looked at the sea; it was calm, and he went home as he always did. "
    dense = (sentence + " " + 9 * prose) * 1300
    result: dict[str, Any] = {
        "proof": "speed",
        "sentence_ms": 0.0,
        "prose_mb_s": 0.0,
        "mixed_mb_s": 0.0,
    }
    normalize_text(sentence, "en")
    times = []
    for _ in range(200):
        begun = time.process_time()
        normalize_text(sentence, "en")
        times.append(time.process_time() - begun)
    result["sentence_ms"] = round(1e3 * sorted(times)[100], 3)
    for name, text in (("prose_mb_s", prose * 12700), ("mixed_mb_s", dense)):
        begun = time.process_time()
        normalize_text(text[:1_000_000], "en")
        result[name] = round(time.process_time() - begun, 2)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strings", type=int, default=10_000)
    parser.add_argument("--numbers", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [fuzz(given.strings, given.seed), unchanged(given.strings // 10, given.seed), speed()]
    rows += oracle(given.numbers, given.seed)
    run = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
             "commit": run.stdout.strip(), "command": " ".join(["python", *sys.argv])}  # fmt: skip
    lines = [json.dumps({**about, "result": row}, ensure_ascii=False) for row in rows]
    for row in rows:
        print(json.dumps(row, ensure_ascii=False)[:1500])
    if given.json:
        given.json.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(rows[0]["faults"] > 0 or rows[1]["changed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
