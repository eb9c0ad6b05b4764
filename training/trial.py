"""Try a new T3 or vocoder with all else as it ships: `pack` makes a folder of it, `judge` hears it.

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

from nightingale.backends.torch.t3.model import T3
from nightingale.loader import PRONUNCIATIONS
from nightingale.measure.quality import Clip, Judge
from nightingale.measure.transcriber import Transcriber
from nightingale.pipeline import Nightingale
from nightingale.weights.manifest import BUNDLE, SUMS, sha256_of
from training import phoneme_t3, phonemes, text_tokenizer, vocoder
from training.pack import write
from training.texts import read
from training.work import work

KINDS = ("sentence", "short", "paragraph")
PARTS = ("*.safetensors", "*.json", PRONUNCIATIONS)


def pack(
    folder: Path,
    size: str = "large",
    spelled: bool = False,
    ship: bool = False,
    last: bool = False,
    also: str = "",
) -> None:
    """The model that ships, with the T3 of a training folder (--last: the weights of its last step,
    not their running mean) and what it reads; --also draft,vocoder: its draft, and what
    training.vocoder has learned."""
    parts = set(also.split(",")) - {""}
    if parts - {"draft", "vocoder"}:
        raise typer.BadParameter(f"--also knows draft and vocoder, not {also!r}")
    _copy_bundle(folder)
    _write_t3(folder / "t3_cfg.safetensors", phoneme_t3.load(size, spelled, ship, last=last))
    if "draft" in parts:
        _write_t3(folder / "t3_draft.safetensors", phoneme_t3.load("draft", spelled, ship))
    if "vocoder" in parts:
        replace_vocoder(folder / "s3gen.safetensors")
    tokenizer = BUNDLE / "tokenizer.json" if spelled else text_tokenizer.FILE
    shutil.copy(tokenizer, folder / "tokenizer.json")
    if not spelled:
        shutil.copy(phonemes.FILE, folder / PRONUNCIATIONS)
    _write_sums(folder)


def pack_vocoder(folder: Path) -> None:
    """The model that ships, with what training.vocoder has learned."""
    _copy_bundle(folder)
    for name in ("tokenizer.json", PRONUNCIATIONS):
        shutil.copy(BUNDLE / name, folder)
    replace_vocoder(folder / "s3gen.safetensors")
    _write_sums(folder)


def _copy_bundle(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for file in [*BUNDLE.glob("*.safetensors"), *BUNDLE.glob("LICENSE*")]:
        shutil.copy(file, folder)


def _write_sums(folder: Path) -> None:
    files = sorted(file for pattern in PARTS for file in folder.glob(pattern))
    sums = "".join(f"{sha256_of(file)}  {file.name}\n" for file in files)
    (folder / SUMS).write_text(sums, encoding="utf-8")


def _write_t3(file: Path, t3: T3) -> None:
    write(file, t3.state_dict(), torch.bfloat16, config={"t3": t3.config})


def replace_vocoder(file: Path) -> None:
    """Put the vocoder of the training folder into the file of a model."""
    prefix, new = vocoder.PREFIX, vocoder.load().state_dict()
    tensors = {name: x for name, x in load_file(file).items() if not name.startswith(prefix)}
    tensors |= {f"{prefix}{name}": x for name, x in new.items()}
    write(file, tensors, torch.float16, config=_config(file) | {"mel2wav": vocoder.CONFIG})


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
    app.command("vocoder")(pack_vocoder)
    app.command("judge")(judge)
    app()
