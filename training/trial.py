"""Try new parts with all else as it ships: `pack` makes a folder of them, `judge` hears it.

Only development texts are heard, never the held-out ones: choices are made here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from nightingale.backends.torch.t3.model import T3
from nightingale.loader import PRONUNCIATIONS
from nightingale.measure.quality import Clip, Judge
from nightingale.measure.transcriber import Transcriber
from nightingale.pipeline import Nightingale
from nightingale.voice.encoders import load_encoders
from nightingale.weights.manifest import BUNDLE, SUMS, sha256_of
from training import flow, phoneme_t3, phonemes, speakers, text_tokenizer, vocoder
from training.pack import conds, named, own_voice, write, write_meanflow
from training.texts import read
from training.work import work

KINDS = ("sentence", "short", "paragraph")
NETWORKS = ("t3", "draft", "vocoder", "flow", "meanflow", "xvector")
FILES = ("*.safetensors", "*.json", PRONUNCIATIONS)


def pack(
    folder: Path,
    parts: str = "t3",
    size: str = "large",
    spelled: bool = False,
    ship: bool = False,
    last: bool = False,
) -> None:
    """The model that ships, with --parts out of the training folder; t3 (--last: the weights of its
    last step, not their running mean) comes with what it reads, xvector with the voice."""
    new = set(parts.split(","))
    if new - set(NETWORKS):
        raise typer.BadParameter(f"--parts are {', '.join(NETWORKS)}, not {parts!r}")
    _copy_bundle(folder)
    s3gen = folder / "s3gen.safetensors"
    if "t3" in new:
        _write_t3(folder / "t3_cfg.safetensors", phoneme_t3.load(size, spelled, ship, last=last))
        tokenizer = BUNDLE / "tokenizer.json" if spelled else text_tokenizer.FILE
        shutil.copy(tokenizer, folder / "tokenizer.json")
        if not spelled:
            shutil.copy(phonemes.FILE, folder / PRONUNCIATIONS)
    if "draft" in new:
        _write_t3(folder / "t3_draft.safetensors", phoneme_t3.load("draft", spelled, ship))
    if "vocoder" in new:
        replace(s3gen, "mel2wav", vocoder.load(), vocoder.CONFIG)
    if "flow" in new:
        replace(s3gen, "flow", flow.load(), flow.config())
    if "meanflow" in new:
        write_meanflow(folder)
    if "xvector" in new:
        replace(s3gen, "speaker_encoder", speakers.load(), speakers.CONFIG)
        voice = own_voice(load_encoders(s3gen, folder / "ve.safetensors"))
        write(folder / "conds.safetensors", conds(voice), torch.float32)
    files = sorted(file for pattern in FILES for file in folder.glob(pattern))
    sums = "".join(f"{sha256_of(file)}  {file.name}\n" for file in files)
    (folder / SUMS).write_text(sums, encoding="utf-8")


def _copy_bundle(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in (file for pattern in (*FILES, "LICENSE*") for file in BUNDLE.glob(pattern)):
        shutil.copy(file, folder)


def _write_t3(file: Path, t3: T3) -> None:
    write(file, t3.state_dict(), torch.bfloat16, config={"t3": t3.config})


def replace(file: Path, part: str, new: nn.Module, config: object) -> None:
    """Put another network into the file of a model."""
    kept = {name: x for name, x in load_file(file).items() if not name.startswith(f"{part}.")}
    write(file, kept | named(**{part: new}), torch.float16, config=_config(file) | {part: config})


def _config(file: Path) -> dict[str, Any]:
    with safe_open(file, "pt") as opened:
        config: dict[str, Any] = json.loads(opened.metadata()["nightingale"])["config"]
    return config


def judge(
    folder: Path = BUNDLE, n: int = 60, kinds: str = ",".join(KINDS), out: Path | None = None
) -> None:
    """Word error rate of the first n texts of each kind; seeds are their numbers."""
    if set(kinds.split(",")) - set(KINDS):
        raise typer.BadParameter(f"kinds are {', '.join(KINDS)}, not {kinds!r}")
    torch.set_num_threads(1)
    tts = Nightingale.load(folder, home=work() / "home", device="cpu", watermark=False)
    ear = Judge(Transcriber(work() / "assets", 1))
    facts: dict[str, object] = {}
    for kind in kinds.split(","):
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
