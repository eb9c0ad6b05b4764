"""Try a new T3 with all else as it ships: `pack` makes a folder of it, `judge` hears it.

Only development texts are heard, never the held-out ones: choices are made here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import torch
import typer

from nightingale.loader import HINTS
from nightingale.measure.quality import Clip, Judge
from nightingale.measure.transcriber import Transcriber
from nightingale.pipeline import Nightingale
from nightingale.weights.manifest import BUNDLE, SUMS, sha256_of
from training import hints, letters, reader
from training.pack import write
from training.texts import read
from training.work import work

KINDS = ("sentence", "short", "paragraph")


def pack(folder: Path, size: str = "large", spelled: bool = False, ship: bool = False) -> None:
    """The model that ships, with the T3 of a training folder and what it reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in BUNDLE.glob("*.safetensors"):
        shutil.copy(file, folder)
    t3 = reader.load(size, spelled, ship)
    header = {"t3": t3.config}
    write(folder / "t3_cfg.safetensors", t3.state_dict(), torch.bfloat16, config=header)
    tokenizer = BUNDLE / "tokenizer.json" if spelled else letters.FILE
    shutil.copy(tokenizer, folder / "tokenizer.json")
    if not spelled:
        shutil.copy(hints.FILE, folder / HINTS)
    parts = sorted(file for file in folder.iterdir() if file.name != SUMS)
    sums = "".join(f"{sha256_of(file)}  {file.name}\n" for file in parts)
    (folder / SUMS).write_text(sums, encoding="utf-8")


def judge(folder: Path = BUNDLE, n: int = 60, out: Path | None = None) -> None:
    """Word error rate of the first n texts of each kind; seeds are their numbers."""
    torch.set_num_threads(1)
    tts = Nightingale.load(folder, home=work() / "home", device="cpu", watermark=False)
    ear = Judge(Transcriber(work() / "assets", 1))
    facts: dict[str, object] = {}
    for kind in KINDS:
        texts = [t for t in read(work() / "texts" / "develop.jsonl") if t.kind == kind][:n]
        clips = (
            Clip(tts.say(t.text, seed=seed, max_tokens=500).samples, t.text, "heart")
            for seed, t in enumerate(texts)
        )
        report = ear.score(clips, {})
        facts[kind] = report.facts()
        typer.echo(f"{folder.name} {kind}: {len(texts)} texts, word error rate {report.words}")
    if out is not None:
        out.write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    app = typer.Typer()
    app.command("pack")(pack)
    app.command("judge")(judge)
    app()
