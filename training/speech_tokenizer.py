"""A small S3 speech tokenizer, trained by two heads that see nothing but its tokens.

One reconstructs the mel, given the speaker; the other recognises the phonemes (CTC). So tokens
carry words and prosody, and the speaker stays outside.
"""

from __future__ import annotations

import functools
import json
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from torch import Tensor, nn

from nightingale.audio.mel import MEL_TOP, mel_to_hertz
from nightingale.voice.speech_tokenizer import (
    N_DIGITS,
    SpeechTokenizer,
    SpeechTokenizerConfig,
    tokens_of,
)
from training import corpus, token_corpus
from training.corpus import FLOW_MEL, TOKEN_MEL, Utterance
from training.loop import Losses, Schedule, load_ema, train
from training.work import work

CONFIG = SpeechTokenizerConfig(n_layers=3, d_model=192)
FOLDER = work() / "tokenizer"
TOKENS = work() / "tokens"
WARPED_TOKENS = work() / "warped_tokens"
LARGEST_WARP = math.log(1.4)  # of frequencies, up or down
WIDTH = 192
UNSPOKEN = frozenset(" ,.!?;:-\u2014\u2026\"'()\u201c\u201dˈˌ")  # not a sound of its own


class TokenizerWithHeads(nn.Module):
    """The tokenizer, its mel decoder and its phoneme head."""

    def __init__(self, n_voices: int, n_phonemes: int) -> None:
        super().__init__()
        self.tokenizer = SpeechTokenizer(CONFIG)
        self.input_proj = nn.Linear(N_DIGITS, WIDTH)
        self.voice = nn.Embedding(n_voices, WIDTH)
        self.blocks = nn.ModuleList(_Block(WIDTH, dilation) for dilation in (1, 2, 4, 1))
        self.out = nn.Linear(WIDTH, 80)
        self.ctc_head = nn.Sequential(
            nn.Conv1d(N_DIGITS, 2 * WIDTH, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(2 * WIDTH, n_phonemes + 1, 3, padding=1),
        )

    def levels(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        """(B, 128, F) -> (B, P, 8), rounded, with the gradient of what was not; and that"""
        smooth = self.tokenizer.quantizer(self.tokenizer.encoder(mel))
        return smooth + (smooth.round() - smooth).detach(), smooth

    def rebuild(self, levels: Tensor, voice: Tensor) -> Tensor:
        """(B, P, 8) -> mel (B, 2 P, 80)"""
        x = self.input_proj(levels) + self.voice(voice)[:, None]
        x = x.repeat_interleave(2, dim=1)
        for block in self.blocks:
            x = block(x)
        return self.out(x)


class _Block(nn.Module):
    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.conv = nn.Conv1d(width, 2 * width, 5, padding=2 * dilation, dilation=dilation)
        self.output_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.conv(self.norm(x).transpose(1, 2)).transpose(1, 2).chunk(2, dim=-1)
        return x + self.output_proj(value * gate.sigmoid())


def phonemes_of(utterances: list[Utterance]) -> list[str]:
    return sorted({sound for u in utterances for sound in u.phonemes} - UNSPOKEN)


class TokenizerTraining:
    """Batches and what is to be learned from them."""

    def __init__(self, utterances: list[Utterance], n_tokens: int) -> None:
        self.voices = sorted({u.voice for u in utterances})
        self.phonemes = phonemes_of(utterances)
        self.net = TokenizerWithHeads(len(self.voices), len(self.phonemes))
        self._number = {sound: 1 + i for i, sound in enumerate(self.phonemes)}
        self._batches = corpus.batches_of_equal_length(corpus.evenly(utterances), n_tokens, seed=1)

    def losses(self, _step: int) -> Losses:
        batch = next(self._batches)
        levels, smooth = self.net.levels(stack(TOKEN_MEL, batch).transpose(1, 2))
        voice = torch.tensor([self.voices.index(u.voice) for u in batch])
        mel = F.l1_loss(self.net.rebuild(levels, voice), stack(FLOW_MEL, batch))
        spelled = self.net.ctc_head(levels.transpose(1, 2)).permute(2, 0, 1).log_softmax(-1)
        said = [[self._number[s] for s in u.phonemes if s in self._number] for u in batch]
        ctc = F.ctc_loss(
            spelled,
            torch.tensor([sound for row in said for sound in row]),
            torch.full((len(batch),), len(spelled)),
            torch.tensor([len(row) for row in said]),
            zero_infinity=True,
        )
        used = len(set(tokens_of(levels.detach()).flatten().tolist())) / levels[..., 0].numel()
        decorrelation = decorrelation_loss(smooth.flatten(0, 1))
        loss = mel + 0.4 * ctc + decorrelation
        return {
            "loss": loss,
            "mel": mel,
            "ctc": ctc,
            "decorrelation": decorrelation,
            "used": torch.tensor(used),
        }


def decorrelation_loss(levels: Tensor) -> Tensor:
    """(N, 8): how far digits are from using all three values, independently of each other."""
    off = levels - levels.mean(0)
    spread = (off.square().mean(0) + 1e-5).sqrt()
    together = (off.T @ off) / len(off) / torch.outer(spread, spread)
    others = together - torch.diag(together.diagonal())
    return levels.mean(0).square().mean() + 4 * F.relu(0.7 - spread).mean() + others.square().mean()


def stack(kind: corpus.Features, batch: list[Utterance]) -> Tensor:
    """(B, T, D)"""
    return torch.from_numpy(np.stack([kind.of(u) for u in batch])).float()


def main(n_steps: int = 5000, minutes: float | None = None, threads: int = 1) -> None:
    torch.set_num_threads(threads)
    training = TokenizerTraining(corpus.training_set(TOKEN_MEL, FLOW_MEL), n_tokens=1000)
    FOLDER.mkdir(parents=True, exist_ok=True)
    sizes = {"n_voices": len(training.voices), "n_phonemes": len(training.phonemes)}
    (FOLDER / "sizes.json").write_text(json.dumps(sizes))
    train(training.net, training.losses, Schedule(n_steps, lr=1e-3), FOLDER, minutes)


def load() -> SpeechTokenizer:
    """The trained tokenizer alone."""
    net = TokenizerWithHeads(**json.loads((FOLDER / "sizes.json").read_text()))
    load_ema(net, FOLDER)
    return net.tokenizer


@torch.inference_mode()
def tokenize(
    voice: str, tokenizer: SpeechTokenizer, most: int | None = None, warp: bool = False
) -> Path:
    """The tokens of a voice's utterances, or of its first ones, kept as {id: tokens}; with `warp`,
    those of larger and smaller speakers who say the same at the same time."""
    torch.set_num_threads(1)
    file = (WARPED_TOKENS if warp else TOKENS) / f"{voice}.json"
    if voice != corpus.MORE:
        corpus.make("token_mel", voice, most)
        corpus.make("flow_mel", voice, most)
    tokens, random = {}, np.random.default_rng(29)
    for utterance in corpus.read(voice)[:most]:
        kept = TOKEN_MEL.has(utterance)
        half = TOKEN_MEL.of(utterance) if kept else corpus.make_token_mel(utterance)
        frames = half.astype(np.float32)
        if warp:
            frames = warp_frequencies(frames, math.exp(random.uniform(-LARGEST_WARP, LARGEST_WARP)))
        levels = tokenizer.quantizer(tokenizer.encoder(torch.from_numpy(frames).T[None]))[0]
        tokens[utterance.id] = tokens_of(levels).tolist()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(tokens))
    return file


def warp_frequencies(frames: NDArray[np.float32], ratio: float) -> NDArray[np.float32]:
    """Vocal tract length perturbation (Jaitly and Hinton, 2013) of (F, 128) bands: what was at a
    frequency is at `ratio` times it, pitch and formants alike; time stays."""
    bands = np.arange(1, frames.shape[1] + 1) * (MEL_TOP / (frames.shape[1] + 1))  # centres
    hertz = mel_to_hertz(bands)
    place = np.interp(hertz / ratio, hertz, np.arange(len(hertz)))
    below = np.minimum(place.astype(int), len(hertz) - 2)
    share = (place - below).astype(np.float32)
    warped: NDArray[np.float32] = frames[:, below] * (1 - share) + frames[:, below + 1] * share
    return warped


def tokens_by_voice(folder: Path = TOKENS) -> dict[str, dict[str, list[int]]]:
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def tokenize_all(
    only: str | None = None, ship: bool = False, most: int | None = None, warp: bool = False
) -> None:
    """Features and tokens of every voice; --ship: by the tokenizer of the package; --most: so many
    utterances of each; --warp: as other speakers would say them."""
    torch.set_num_threads(1)
    tokenizer = token_corpus.load_tokenizer() if ship else load()
    job = functools.partial(tokenize, tokenizer=tokenizer, most=most, warp=warp)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for file in pool.map(job, [only] if only else corpus.voices(more=not ship)):
            typer.echo(file)


if __name__ == "__main__":
    app = typer.Typer()
    app.command("train")(main)
    app.command("apply")(tokenize_all)
    app()
