"""T3 of the second Fledgling: reads sounds where they are known and letters elsewhere.

`python -m training.phoneme_t3 train` trains it, with `--size small` a network as large as the first
one's; with phonemes, or without (--spelled); from random weights, or from those that ship (--ship).
Each has a folder of its own and resumes from its last checkpoint.
"""

from __future__ import annotations

from dataclasses import replace

import torch
import typer
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.loader import PRONUNCIATIONS
from nightingale.weights.manifest import BUNDLE
from training import codes, phonemes, text_tokenizer
from training.batch import IGNORED
from training.loop import Schedule, load_ema, train
from training.t3 import DRAFT, Objective, init_small
from training.t3_dataset import OTHERS, SPELLED, WIDE, PhonemeDataset
from training.work import work

SMALL = CONFIGS["fledgling"]
LARGE = replace(
    SMALL, n_layers=10, d_model=320, n_heads=5, d_ffn=896, alignment_heads=((3, 0), (4, 1))
)
SIZES = {"small": SMALL, "large": LARGE, "draft": DRAFT}
RATES = {"small": 1.5e-3, "large": 1e-3, "draft": 1.5e-3}
SHIPPED = {"small": "t3_cfg.safetensors", "draft": "t3_draft.safetensors"}
N_POSITIONS = 2400  # of a batch, voice and text and padding included
DEVELOP = work() / "develop" / "heart.jsonl"


def name_of(size: str, spelled: bool, ship: bool) -> str:
    return "t3_" + size + ("_letters" if spelled else "") + ("_ship" if ship else "")


def initial_t3(size: str, ship: bool) -> T3:
    """With factorized codes; from the weights that ship, or from small random ones."""
    t3 = T3(SIZES[size])
    init_small(t3)
    shipped = load_file(BUNDLE / SHIPPED[size]) if ship else {}
    if ship:
        t3.load_state_dict({name: tensor.float() for name, tensor in shipped.items()})
    if ship and not (BUNDLE / PRONUNCIATIONS).is_file():  # it reads no sounds yet
        rows, numbers = (
            t3.text_emb.weight.data,
            Tokenizer.from_file(str(text_tokenizer.FILE)).get_vocab(),
        )
        for sound in phonemes.SOUNDS:  # read at first as the letter that it begins with
            rows[numbers[sound]] = rows[numbers[sound[0].lower()]]
    for name in ("speech_emb", "speech_head"):
        table = t3.get_submodule(name)
        assert isinstance(table, nn.Embedding | nn.Linear)
        codes.add_digit_embedding(table, 0.05)
        if ship:  # as they are, and nothing that their digits say yet
            with torch.no_grad():
                table.get_parameter("parametrizations.weight.original").copy_(
                    shipped[f"{name}.weight"]
                )
                table.get_parameter("parametrizations.weight.0.said").zero_()
    return t3


def main(
    size: str = "large",
    spelled: bool = False,
    ship: bool = False,
    n_steps: int = 30_000,
    rate: float | None = None,
    stop: int | None = None,
    bf16: bool = False,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    files, others = sorted(WIDE.glob("**/*.jsonl")), sorted(OTHERS.glob("*.jsonl"))
    dataset = PhonemeDataset(files, N_POSITIONS, 1.0 if spelled else SPELLED, others)
    t3 = initial_t3(size, ship)
    objective = Objective(t3, compiled=True)
    print(f"{dataset.facts}; {sum(p.numel() for p in t3.parameters()) / 1e6:.2f} M parameters")
    warmup = min(300, n_steps // 5)
    schedule = Schedule(
        n_steps,
        rate or RATES[size],
        warmup,
        weight_decay=0.05,
        checkpoint_every=100,
        bf16=bf16,
        stop=stop,
    )
    folder = work() / name_of(size, spelled, ship)
    train(t3, lambda step: objective.losses(dataset.batch(step)), schedule, folder)


@torch.inference_mode()
def evaluate(size: str = "large", spelled: bool = False, ship: bool = False) -> None:
    """The loss of the kept weights on what choices are made on; `--ship` without a folder: v1's."""
    torch.set_num_threads(1)
    dataset = PhonemeDataset([DEVELOP], N_POSITIONS, spelled=1.0 if spelled else 0.0)
    folder = work() / name_of(size, spelled, ship)
    t3 = initial_t3(size, ship)
    if (folder / "mean.safetensors").is_file():
        load_ema(t3, folder)
    objective, total, n_all = Objective(t3), torch.zeros(2), 0
    for step in range(len(dataset.batches)):
        torch.manual_seed(step)
        batch = dataset.batch(step)
        found = objective.losses(batch, plain=True)
        n = int((batch.wanted != IGNORED).sum())
        total += n * torch.stack((found["speech"], found["alignment"]))
        n_all += n
    speech, alignment = (total / n_all).tolist()
    print(f"{folder.name}: speech {speech:.4f} alignment {alignment:.4f}, {n_all} tokens")


def load(
    size: str = "large", spelled: bool = False, ship: bool = False, *, last: bool = False
) -> T3:
    """The trained network with plain tables, as it is packed: the running mean of its weights, or
    those of the last step."""
    t3, folder = initial_t3(size, ship), work() / name_of(size, spelled, ship)
    load_ema(t3, folder)
    if last:
        t3.load_state_dict(torch.load(folder / "last.pt", weights_only=True)["net"])
    for name in ("speech_emb", "speech_head"):
        table = t3.get_submodule(name)
        assert isinstance(table, nn.Embedding | nn.Linear)
        codes.merge_digit_embedding(table)
    return t3


if __name__ == "__main__":
    app = typer.Typer()
    app.command("train")(main)
    app.command("evaluate")(evaluate)
    app()
