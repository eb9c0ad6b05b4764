"""Put the trained parts into files as a release has them: names, layout, and sizes in the header.

Weights become 16-bit; of matrices, two more bits are rounded away, so that the wheel that carries
them stays small (ZIP leaves 67 % of them instead of 78). The mean-flow decoder differs from the
standard one in its estimator alone: its file holds just that and says where the rest is.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import torch
import typer
from safetensors.torch import save_file
from torch import Tensor, nn

from nightingale.core import T3Prompt, Voice
from nightingale.voice.clone import Encoders, clone
from nightingale.weights.manifest import SUMS, sha256_of
from training import corpus, flow, speakers, speech_tokenizer, t3, text_tokenizer, vocoder

N_PROMPT_TOKENS = 90  # of the voice that comes along: short, because every request pays for it


def write(file: Path, tensors: dict[str, Tensor], dtype: torch.dtype, **header: Any) -> None:
    facts = {"nightingale": json.dumps(header, default=_plain)} if header else None
    small = {name: shrunk(tensor, dtype).contiguous() for name, tensor in tensors.items()}
    save_file(small, file, facts)
    typer.echo(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB")


def shrunk(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Matrices to bfloat16 with 5 bits behind the first; vectors to what is asked for."""
    if not tensor.is_floating_point() or dtype == torch.float32:
        return tensor
    if tensor.dim() < 2:
        return tensor.to(dtype)
    power = tensor.float().abs().clamp_min(1e-30).log2().floor()
    unit = torch.exp2(power - 5)
    return ((tensor.float() / unit).round() * unit).bfloat16()


def _plain(value: object) -> Any:
    assert is_dataclass(value)
    return asdict(value)  # type: ignore[arg-type]


def named(**parts: nn.Module) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


def own_voice(encoders: Encoders) -> Voice:
    """The voice that comes along: a few seconds of the one that most was learned from."""
    for utterance in corpus.read("heart"):
        if utterance.split == "train" and utterance.n_tokens >= N_PROMPT_TOKENS:
            n = N_PROMPT_TOKENS * 960
            return clone(utterance.samples()[:n], encoders, "english")
    raise AssertionError("no utterance is long enough")


def conds(voice: Voice) -> dict[str, Tensor]:
    prompt: T3Prompt = voice.t3
    return {
        "t3.speaker_emb": torch.from_numpy(prompt.speaker)[None],
        "t3.cond_prompt_speech_tokens": torch.from_numpy(prompt.tokens)[None],
        "gen.prompt_token": torch.from_numpy(voice.flow.tokens)[None],
        "gen.prompt_token_len": torch.tensor([len(voice.flow.tokens)]),
        "gen.prompt_feat": torch.from_numpy(voice.flow.mel)[None],
        "gen.embedding": torch.from_numpy(voice.flow.xvector)[None],
    }


def write_meanflow(folder: Path) -> None:
    """The student's estimator alone: all else is in s3gen.safetensors."""
    student = flow.load("meanflow")
    estimator = {k: v for k, v in named(flow=student).items() if k.startswith("flow.decoder.")}
    write(
        folder / "s3gen_meanflow.safetensors",
        estimator,
        torch.float16,
        config={"flow": student.config},
        rest="s3gen.safetensors",
    )


def main(folder: Path, draft: bool = True, meanflow: bool = True) -> None:
    """Write all files of the model into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    half, brain = torch.float16, torch.bfloat16
    models = {"t3_cfg": t3.load()} | ({"t3_draft": t3.load(draft=True)} if draft else {})
    for name, model in models.items():
        file = folder / f"{name}.safetensors"
        write(file, model.state_dict(), brain, config={"t3": model.config})
    sound = vocoder.load()
    decoder, ear, who = flow.load(), speech_tokenizer.load(), speakers.load()
    write(
        folder / "s3gen.safetensors",
        named(flow=decoder, mel2wav=sound, tokenizer=ear, speaker_encoder=who),
        half,
        config={
            "flow": decoder.config,
            "mel2wav": vocoder.CONFIG,
            "tokenizer": speech_tokenizer.CONFIG,
            "speaker_encoder": speakers.CONFIG,
        },
    )
    if meanflow:
        write_meanflow(folder)
    reader = speakers.speaker_encoder()
    write(folder / "ve.safetensors", reader.state_dict(), half)
    voice = own_voice(Encoders(ear, reader, who))
    write(folder / "conds.safetensors", conds(voice), torch.float32)
    shutil.copy(text_tokenizer.FILE, folder / "tokenizer.json")
    parts = [*sorted(folder.glob("*.safetensors")), folder / "tokenizer.json"]
    sums = "".join(f"{sha256_of(file)}  {file.name}\n" for file in parts)
    (folder / SUMS).write_text(sums, encoding="utf-8")
    total = sum(file.stat().st_size for file in folder.iterdir())
    typer.echo(f"all: {total / 1e6:.2f} MB")


if __name__ == "__main__":
    typer.run(main)
