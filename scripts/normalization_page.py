# ruff: noqa: E501
"""Makes docs/normalization.md: what is said for 22 kinds of written things in 23 languages.

python scripts/normalization_page.py            # writes it
python scripts/normalization_page.py --check    # fails if it is not up to date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from nightingale.text.languages import LANGUAGES
from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization import normalize_text
from nightingale.text.normalization.spelling import table

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/normalization.md"
HEARD = ROOT / "benchmarks/results/spoken_figures-2026-11-17.jsonl"
HOME = {
    "en": "$",
    "pt": "R$",
    "hi": "₹",
    "ru": "₽",
    "pl": "zł",
    "tr": "₺",
    "he": "₪",
    "ja": "¥",
    "zh": "¥",
    "ko": "₩",
    "ms": "RM",
    "sv": "kr",
    "no": "kr",
    "da": "kr",
    "sw": "$",
    "ar": "$",
}
ORDINALS = {
    "ar": "3",
    "he": "3",
    "en": "3rd",
    "es": "3.º",
    "it": "3º",
    "pt": "3º",
    "fr": "3e",
    "nl": "3e",
    "sv": "3:e",
    "ru": "3-й",
    "el": "3ος",
    "ja": "第3",
    "zh": "第3",
    "ko": "3번째",
    "ms": "ke-3",
    "sw": "wa 3",
    "hi": "3रा",
}
LOCAL_DATES = {"en": "5/3/2024", "ja": "2024年5月3日", "zh": "2024年5月3日", "ko": "2024년 5월 3일"}
FAILURES = """
- **Case and gender by context.** Numbers stand in the nominative: Russian "в 2024 году", Polish,
  Finnish, Greek, Arabic and Hebrew want other forms. German ordinals are weak behind am, vom, zum,
  im, dem, den, beim, else strong or plain.
- **Clocks.** Arabic says cardinal hours; Swahili counts from six, which is not done; 12-hour habits
  of other languages are not applied.
- **Duals and counted nouns** of Arabic and Hebrew follow CLDR's patterns, which leave the number.
- **Chinese 两** (for 二) and readings of counters in Japanese and Korean are not chosen.
- **03/04/2024** is month first in English and day first elsewhere, also in en-GB.
- **Telephone numbers** are found by their shape; digits are said one by one.
- **Roman numerals** only in Latin scripts and behind a capitalised word; ordinals for a list of
  rulers in English, German, Spanish, Italian, Portuguese and Dutch.
- **Polish ordinals** to 31; Arabic and Hebrew ordinals are not marked in writing.
- **Italian ordinals from 5,000** differ from ICU's ("cinquemilasimo").
- Chess, scores, ISBNs, chemical formulas and mathematics are read as plain figures.
"""


def kinds(code: str) -> dict[str, str]:
    data = table()[code]
    point, sign = data["decimal"], HOME.get(code, "€")
    group = "." if point == "," else ","
    month = data["months"][4]
    is_behind = code in ("de", "fr", "es", "it", "fi", "el", "pl", "ru", "tr", "sv", "no", "da")
    money = f"12{point}50 {sign}" if is_behind else f"{sign}12{point}50"
    dated = {"en": f"{month} 3, 2024", "de": f"am 3. {month} 2024"}.get(code, f"3 {month} 2024")
    if code in ("da", "no", "fi"):
        dated = f"3. {month} 2024"
    abbreviation = next(iter(by_hand.ABBREVIATIONS[code]), "")
    return {
        "whole": "1984567",
        "zero": "0",
        "grouped": f"12{group}345",
        "decimal": f"1{group}234{point}5",
        "negative": f"-7{point}25",
        "ordinal": ORDINALS.get(code, "3. x"),
        "year": "2024年" if code in ("ja", "zh") else "1984",
        "money": money,
        "money, one": f"1 {sign}" if is_behind else f"{sign}1",
        "dollars": "$2",
        "date, ISO": "2024-05-03",
        "date, local": LOCAL_DATES.get(code, "3.5.2024" if point == "," else "3/5/2024"),
        "date, named": "" if month[0].isdigit() or code in ("ko", "zh") else dated,
        "time": "10:45",
        "full hour": "8:00",
        "mass": "25 kg",
        "speed": f"90{point}5 km/h",
        "temperature": "-3 °C",
        "data": "16 GB",
        "percent": "25 %" if is_behind else "25%",
        "range": "10–20",
        "fraction": "1/2",
        "phone": "+49 30 123456",
        "URL": "www.example.com/a-1",
        "e-mail": "info@example.com",
        "version": "v1.2.3",
        "abbreviation": abbreviation,
    }


def page() -> str:
    lines = [
        "# Text normalization",
        "",
        "Made by `python scripts/normalization_page.py`; do not edit. What is said where the option",
        "`normalization` is `auto` (the default) or names the language; `off` leaves the text to the model.",
        "",
        "**Checked**: whole numbers of all 23 languages against ICU, 10,000 each (0 disagreements),",
        "ordinals of the 22 that have rules (it from 5,000, ru, 2 of sw differ), years from 1100 to 2099",
        "(da, no, sv from 2000, ja and ru differ: said as plain numbers on purpose), by",
        "`benchmarks/normalization.py` (results in `benchmarks/results/`); units, currencies and months are",
        "CLDR's (`scripts/normalization_table.py`). **Unchecked by a native speaker**: everything else,",
        "in every language: clocks, dates, words for signs, abbreviations, short names of currencies.",
        "",
        *_heard(),
        "## Known failures",
        FAILURES,
    ]
    for code, name in LANGUAGES.items():
        lines += [f"## {name} ({code})", "", "| kind | written | said |", "| --- | --- | --- |"]
        for kind, written in kinds(code).items():
            if written:
                said = normalize_text(written, code).spoken
                note = " (left as it is)" if said == written else ""
                lines.append(f"| {kind} | {_cell(written)} | {_cell(said)}{note} |")
        lines.append("")
    return "\n".join(lines)


def _heard() -> list[str]:
    """What Whisper understands of Fledgling, with and without."""
    line = json.loads(HEARD.read_text(encoding="utf-8"))
    result = line["result"]
    names = {
        "auto": "`auto`",
        "off": "`off`",
        "spelled_out": "spelled out by hand (the text of `auto`)",
    }
    rows = [
        f"| {name} | {result['wrong'][way]} of {result['words']} | {result['word_error_rate'][way]} % "
        f"| {_interval(result['interval_95'][way])} |"
        for way, name in names.items()
    ]
    return [
        "## How well it is heard", "",
        f"`benchmarks/spoken_figures.py`: Fledgling says {result['sentences']} English sentences full of figures (plan",
        "`balanced`, one seed for each), Whisper base writes them down; word error rate against the sentences",
        f"spelled out, {line['date']}. The difference of `off` and `auto` is {_interval(result['interval_95']['off - auto'])} points (95 %,",
        "paired bootstrap). The sentences were written by the author of the rules, and all come out as spelled",
        "by hand: this is what normalization is worth to a listener, not how often it is right. Fledgling's own",
        "tokenizer spells plain numbers also with `off`; real weights were not heard.", "", "| normalization | wrong words | word error rate | 95 % |", "| --- | --- | --- | --- |", *rows, "",
    ]  # fmt: skip


def _interval(bounds: list[float]) -> str:
    return f"{bounds[0]} to {bounds[1]}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true")
    made = page()
    if parser.parse_args().check:
        return int(PAGE.read_text(encoding="utf-8") != made)
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
