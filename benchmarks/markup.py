"""Proofs of the mark-up: malformed inputs, time, and the pauses of a dialogue in the sound.

    python -m benchmarks.markup --strings 10000 --dialogue --json benchmarks/results/markup.jsonl

Fuzz: tags of all kinds, whole and cut, in each other, in ordinary text of several scripts. Nothing
may raise but TextError and its MarkupError; tokens cover the text exactly; no tag is read: names
that nobody knows, attributes and values of generated tags have QQQ in them, which must not be left
in the text; and a text in pieces gives what the whole gives.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from nightingale import Nightingale, Voice
from nightingale.audio.audible import first_audible, last_audible
from nightingale.errors import TextError
from nightingale.text.markup import Markup
from nightingale.text.markup.lexer import Lexer

CANARY = "QQQ"
WORDS = ("go", "home", "a < b", "x>y", "[1]", "[x](y)", "AT&T", "3.5 kg", "привет", "你好", "مرحبا",
         "\n\n", "\n", "…", "don't", '"so"', "List<int>", "&amp;", "&", "<", ">", "[", "]", "]]>",
         "</", "<!--",
         "-->", "🎉", "\u0301", "[[", "<<", "'", '"')  # fmt: skip
NAMES = ("break", "voice", "lang", "sub", "spell", "say-as", "prosody", "speak", "emphasis",
         "QQQ", "QQQ-b", "b:QQQ", "яQQQ")  # fmt: skip
ATTRIBUTES = ("time", "name", "xml:lang", "alias", "rate", "strength", "interpret-as", "QQQ")
VALUES = (
    "QQQ",
    "1s",
    "QQQms",
    "20s",
    "-QQQ",
    "80%",
    "de",
    "",
    "QQQ > QQQ",
    "characters",
    "&quot;QQQ",
)
BROKEN = ("{}", "{}", "{}", "{}", "<speak>{}</speak>", "{}{}", "< {}", "<{}")


def _attribute(rng: random.Random) -> str:
    name, quote = rng.choice(ATTRIBUTES), rng.choice('"\'"\'"')
    if rng.random() < 0.1:
        return f" {name}=QQQ"
    return f" {name}={quote}{rng.choice(VALUES)}{quote}"


def tag(rng: random.Random) -> str:
    """One that must not be read, whole or with attributes that make no sense."""
    kind = rng.random()
    if kind < 0.3:
        value = rng.choice(("QQQ", "500ms", "1s", "20s", "1e9", "QQQ QQQ", "-1", "QQQ" * 20))
        return rng.choice((f"[pause:{value}]", f"[voice:{value}]", "[/voice]", "[pause]"))
    name = rng.choice(NAMES)
    if kind < 0.5:
        return f"</{name}>"
    body = "".join(_attribute(rng) for _ in range(rng.randrange(4)))
    return f"<{name}{body}{rng.choice(('', ' ', '/', ' /'))}>"


def strings(n: int, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    for number in range(n):
        pieces = [
            tag(rng) if rng.random() < 0.45 else rng.choice(WORDS) + " "
            for _ in range(rng.randint(1, 30))
        ]
        text = rng.choice(BROKEN).replace("{}", "".join(pieces))
        if number % 500 == 499:
            text = text * 400
        yield text


def _lexed(text: str) -> tuple[str, bool]:
    """What is wrong with the tokens, and whether there are tags."""
    lexer, at, has_tags = Lexer(), 0, False
    for token in [*lexer.feed(text), *lexer.finish()]:
        written = text[token.start : token.end]
        has_tags |= token.tag is not None
        is_read = token.text in ("", written, written.replace("\n", " "))
        if token.start != at:
            return "tokens do not cover the text", True
        if token.tag is None and not is_read and not written.startswith("&"):
            return "a token has other characters than the text", True
        at = token.end
    return ("" if at == len(text) else "tokens do not cover the text"), has_tags


def fault(text: str, rng: random.Random) -> tuple[str, bool, bool]:
    """What is wrong, whether it has tags, and whether it was refused."""
    wrong, has_tags = _lexed(text)
    is_refused = False
    cuts = sorted(rng.randrange(len(text) + 1) for _ in range(4))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    try:
        whole = Markup("en").whole(text)
        if CANARY in whole:
            wrong = f"a tag is read: {whole!r}"
        elif "".join(Markup("en").read(pieces)) != whole:
            wrong = "pieces give another text than the whole"
    except TextError as error:
        is_refused = True
        wrong = wrong or ("" if str(error) else "an error without words")
    except Exception as error:  # the proof is that there is none
        wrong = f"raises {type(error).__name__}: {error}"
    return wrong, has_tags, is_refused


def fuzz(n: int, seed: int) -> dict[str, Any]:
    faults, n_tags, n_errors, rng = list[dict[str, str]](), 0, 0, random.Random(seed)
    for text in strings(n, seed):
        wrong, has_tags, is_refused = fault(text, rng)
        n_tags, n_errors = n_tags + has_tags, n_errors + is_refused
        if wrong:
            faults.append({"text": text[:300], "fault": wrong[:300]})
    found = {"strings": n, "with_tags": n_tags, "errors": n_errors, "faults": len(faults)}
    return {"proof": "fuzz", **found, "examples": faults[:10]}


def speed(n: int = 1_000_000) -> dict[str, Any]:
    """Seconds for a million characters."""
    units = ("word ", "<", "[", "<a", "<voice ", '<sub a="', "[pause:", "[pause:1ms", "<speak>",
             "&#", "<!--", "</", "<s", "[voice:", "<break time='", '"<', "[/voice]",
             "<b>", "<a b", "<a b=", "<a b='c' ", "<a b=c", "<a b c d e f ")  # fmt: skip
    taken = {}
    for unit in units:
        text = (unit * (n // len(unit) + 1))[:n]
        begun = time.process_time()
        with suppress(TextError):
            Markup("en").whole(text)
        taken[unit] = round(time.process_time() - begun, 2)
    return {"proof": "speed", "characters": n, "seconds": taken, "slowest": max(taken.values())}


def dialogue(recordings: list[Path]) -> dict[str, Any]:
    """Three voices and pauses of several lengths, measured in the sound of Fledgling."""
    pauses_ms = (500, 1200, 300, 2000, 700, 150)
    names = ("anna", "bob")
    lines = [f"[voice:{(*names, 'default')[n % 3]}]This is line number {n}.[pause:{p}ms]"
             for n, p in enumerate(pauses_ms)]  # fmt: skip
    with tempfile.TemporaryDirectory() as home:
        model = Nightingale.load("fledgling", plan="live", home=Path(home))
        voices: dict[str, Voice] = {
            n: model.clone(r) for n, r in zip(names, recordings, strict=True)
        }
        voices["default"] = model.components.voice
        speech = model.stream("".join(lines) + "[voice:anna]The end.", seed=1, voices=voices)
        chunks = list(speech)
        samples = np.concatenate([chunk.samples for chunk in chunks])
        again = model.say("".join(lines) + "[voice:anna]The end.", seed=1, voices=voices).samples
    at, measured = 0, []
    for chunk in chunks:
        if chunk.is_pause:
            last, first = last_audible(samples[:at]), first_audible(samples[at:])
            assert last is not None and first is not None
            measured.append((at + first - last - 1) / 24)
        at += len(chunk.samples)
    errors = [abs(found - asked) for found, asked in zip(measured, pauses_ms, strict=True)]
    return {"proof": "dialogue", "asked_ms": pauses_ms,
            "measured_ms": [round(m, 2) for m in measured],
            "largest_error_ms": round(max(errors), 2), "seconds": round(len(samples) / 24000, 2),
            "say_is_stream": bool(np.array_equal(samples, again))}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--strings", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dialogue", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    rows = [fuzz(given.strings, given.seed), speed()]
    if given.dialogue:
        voices = Path(__file__).parents[1] / "tests/quality/voices"
        names = ("af_sarah_cloned.ogg", "am_michael_cloned.ogg")
        rows.append(dialogue([voices / name for name in names]))
    run = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    command = " ".join(["python -m benchmarks.markup", *sys.argv[1:]])
    about = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
             "commit": run.stdout.strip(), "command": command}  # fmt: skip
    for row in rows:
        print(json.dumps(row, ensure_ascii=False)[:2000])
    if given.json:
        with given.json.open("a", encoding="utf-8") as file:
            file.writelines(
                json.dumps({**about, "result": row}, ensure_ascii=False) + "\n" for row in rows
            )
    return int(rows[0]["faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
