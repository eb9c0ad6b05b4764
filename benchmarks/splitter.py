# ruff: noqa: E501
"""Ends of sentences, beside two oracles: pysbd and ICU's sentence breaker.

    python benchmarks/splitter.py --json benchmarks/results/splitter.jsonl

Texts of three sentences each are put together from sentences with abbreviations, ordinals, initials,
decimal numbers and times, in every language that pysbd or ICU has rules for; which sentences they
were made of is known. Counts for each judge how many texts it cuts into exactly those sentences.
Fails if ours is right less often than the better oracle in any language, or below 95 % in all.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import platform
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nightingale.text.split import SplitPolicy, split

SENTENCES = SplitPolicy(sentence=1, clause=10**9, limit=10**9)
N_TEXTS, N_SENTENCES = 100, 3
PLAIN = {
    "ar": ["وصل القطار إلى المحطة.", "هل أنت هناك؟", "الجو جميل اليوم!", "وصل د. سامي أمس."],
    "da": ["Toget kører klokken ni.", "Er du der?", "Hun kom den 3. maj.", "Vi så bl.a. en film.",
           "Dr. Holm bor her.", "Det koster 12.50 kroner.", "Mødet er kl. 9 i dag."],
    "de": ["Der Zug fährt um neun ab.", "Bist du da?", "Sie kam am 3. Mai an.",
           "Wir sahen z. B. einen Film.",
           "Dr. Meier wohnt hier.", "Das war im 19. Jahrhundert.", "Es kostet ca. 12.50 Euro.",
           "Die Firma hat 20 Mio. Euro.", "Prof. Schmidt sprach über Ludwig XIV. von Frankreich."],
    "el": ["Το τρένο φεύγει στις εννιά.", "Πού είναι ο κ. Παππάς τώρα;", "Ο Δρ. Νίκου μένει εδώ.",
           "Κοστίζει 12.50 ευρώ."],
    "en": ["The train leaves at nine.", "Are you there?", "It opens at 9 a.m. on weekdays.",
           "Dr. Smith lives here.", "Some fruit, e.g. apples, is red.", "It cost $12.50 in all.",
           "Mr. and Mrs. Hill met J. R. Jones.", "The U.S. economy grew.", "See No. 5 below.",
           "She moved to St. Louis."],
    "es": ["El tren sale a las nueve.", "¿Estás ahí?", "El Sr. García vive aquí.",
           "La Dra. López llegó ayer.", "Cuesta 12.50 euros.", "Vea la pág. 12 del libro."],
    "fi": ["Juna lähtee yhdeksältä.", "Oletko siellä?", "Hän tuli 3. toukokuuta.",
           "Näimme esim. elokuvan.", "Se maksaa n. 12.50 euroa.", "Kokous on klo 9 tänään."],
    "fr": ["Le train part à neuf heures.", "Es-tu là ?", "M. Dupont habite ici.",
           "Le Dr. Martin est venu.", "Cela coûte 12.50 euros.", "Voir p. 12 du livre."],
    "hi": ["ट्रेन नौ बजे जाती है।", "क्या आप वहाँ हैं?", "डॉ. शर्मा यहाँ रहते हैं।"],
    "it": ["Il treno parte alle nove.", "Ci sei?", "Il sig. Rossi abita qui.",
           "Il dott. Bianchi è venuto.", "Costa 12.50 euro.", "Vedi pag. 12 del libro."],
    "ja": ["電車は九時に出ます。", "そこにいますか？", "今日はいい天気です。", "3.5キロ歩きました。"],
    "ko": ["기차는 아홉 시에 떠난다.", "거기 있어요?", "값은 12.50 달러이다."],
    "ms": ["Kereta api bertolak pukul sembilan.", "Adakah anda di sana?", "Dr. Ali tinggal di sini.",
           "Harganya 12.50 ringgit."],
    "nl": ["De trein vertrekt om negen uur.", "Ben je daar?", "Dhr. de Vries woont hier.",
           "Dr. Jansen kwam gisteren.", "Het kost ca. 12.50 euro.", "Fruit, bijv. appels, is rood."],
    "no": ["Toget går klokken ni.", "Er du der?", "Hun kom den 17. mai.", "Vi så bl.a. en film.",
           "Dr. Hansen bor her.", "Det koster ca. 12.50 kroner."],
    "pl": ["Pociąg odjeżdża o dziewiątej.", "Jesteś tam?", "To był 3. dzień.",
           "Dr Nowak mieszka przy ul. Długiej.", "Owoce, np. jabłka, są czerwone.",
           "Prof. Kowalski przyszedł wczoraj."],
    "pt": ["O comboio parte às nove.", "Estás aí?", "O Sr. Silva mora aqui.",
           "A Dra. Costa chegou ontem.", "Custa 12.50 euros.", "Veja a pág. 12 do livro."],
    "ru": ["Поезд уходит в девять.", "Ты там?", "В 2024 г. вышла книга.", "Он живёт на ул. Мира.",
           "Это стоит 12.50 рубля.", "Фрукты, т.е. яблоки, красные."],
    "sv": ["Tåget går klockan nio.", "Är du där?", "Vi såg t.ex. en film.", "Dr. Holm bor här.",
           "Det kostar ca. 12.50 kronor.", "Mötet är kl. 9 i dag."],
    "sw": ["Treni inaondoka saa tatu.", "Je, uko hapo?", "Dk. Ali anaishi hapa.", "Bei ni 12.50 leo."],
    "tr": ["Tren saat dokuzda kalkıyor.", "Orada mısın?", "Bugün 3. gün oldu.",
           "Dr. Yılmaz burada oturuyor.", "Fiyatı 12.50 lira."],
    "zh": ["火车九点开。", "你在那里吗？", "今天天气很好！", "我走了3.5公里。"],
    "he": ["הרכבת יוצאת בתשע.", "האם אתה שם?", "פרופ. לוי גר כאן.", "זה עולה 12.50 שקלים."],
}  # fmt: skip


def texts(language: str, seed: int = 0) -> list[list[str]]:
    rng = random.Random(f"{seed} {language}")
    rows = list(itertools.permutations(PLAIN[language], N_SENTENCES))
    return rng.sample([list(row) for row in rows], min(N_TEXTS, len(rows)))


def by_ours(text: str, language: str) -> list[str]:
    return [part.text for part in split(text, SENTENCES, language)]


def by_pysbd(text: str, language: str) -> list[str] | None:
    pysbd: Any = importlib.import_module("pysbd")
    try:
        segmenter = pysbd.Segmenter(language=language, clean=False)
    except ValueError:
        return None
    return [sentence.strip() for sentence in segmenter.segment(text)]


def by_icu(text: str, language: str) -> list[str]:
    icu: Any = importlib.import_module("icu")
    breaker = icu.BreakIterator.createSentenceInstance(icu.Locale(f"{language}@ss=standard"))
    breaker.setText(text)
    units, start, found = text.encode("utf-16-le"), 0, []
    for end in breaker:
        found.append(units[2 * start : 2 * end].decode("utf-16-le").strip())
        start = end
    return found


def measure() -> list[dict[str, Any]]:
    rows = []
    for language in PLAIN:
        glue = "" if language in ("ja", "zh") else " "
        made = texts(language)
        row: dict[str, Any] = {"language": language, "texts": len(made)}
        row["sentences"] = N_SENTENCES * len(made)
        for name, judge in (("ours", by_ours), ("pysbd", by_pysbd), ("icu", by_icu)):
            found = [judge(glue.join(sentences), language) for sentences in made]
            is_known = found[0] is not None
            right = [a == b for a, b in zip(found, made, strict=True)]
            row[name] = sum(right) if is_known else None
            if name == "ours" and not all(right):
                row["wrong"] = found[right.index(False)]
        rows.append(row)
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = measure()
    for row in rows:
        print(row)
    n_texts = sum(row["texts"] for row in rows)
    n_right = {name: sum(row[name] or 0 for row in rows) for name in ("ours", "pysbd", "icu")}
    n_known = sum(row["texts"] for row in rows if row["pysbd"] is not None)
    worse = [r["language"] for r in rows if r["ours"] < max(r["icu"], r["pysbd"] or 0)]
    ok = not worse and n_right["ours"] >= 0.95 * n_texts
    summary = {
        "proof": "splitter", "date": time.strftime("%Y-%m-%d"), "machine": platform.processor() or
        platform.machine(), "commit": _commit(), "command": " ".join(["python", *sys.argv]),
        "languages": len(rows), "texts": n_texts, "sentences": N_SENTENCES * n_texts,
        "right": n_right, "texts_pysbd_knows": n_known, "worse_than_an_oracle": worse, "ok": ok,
    }  # fmt: skip
    print(json.dumps(summary))
    if given.json:
        lines = [json.dumps(line, ensure_ascii=False) for line in [summary, *rows]]
        given.json.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return int(not ok)


def _commit() -> str:
    run = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return run.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
