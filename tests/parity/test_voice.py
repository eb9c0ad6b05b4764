"""Voices against upstream's, on the same random weights and recordings, from file to tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from nightingale.audio import files, mel
from nightingale.audio.loudness import loudness
from nightingale.audio.resample import resample
from nightingale.core import Family
from nightingale.voice import speaker_encoder, speech_tokenizer, xvector
from nightingale.voice.clone import Encoders, clone
from nightingale.voice.speaker_encoder import SpeakerEncoder, trim
from nightingale.voice.speech_tokenizer import SpeechTokenizer, SpeechTokenizerConfig
from nightingale.voice.xvector import XVector, XVectorConfig
from nightingale.weights.load import load_into
from tests.audio.corpus import buzz
from tests.parity.conftest import RunUpstream
from tests.voice.clips import make_clip
from tests.voice.tiny import SMALL_TOKENIZER, SMALL_XVECTOR

pytestmark = pytest.mark.parity

BARS = {  # the largest error allowed
    "wave": 1e-6,
    "mel": 1e-5,
    "speaker": 1e-4,
    "xvector": 1e-4,
}
N_CLIPS = 100


@dataclasses.dataclass
class Clip:
    path: Path
    family: Family
    voice: Path


def make_clips(n_clips: int, folder: Path, longest: float) -> list[Clip]:
    """From 1.1 s on for English, from 5.1 s on for Turbo, each of another length."""
    families: list[Family] = ["english", "turbo", "multilingual"]
    clips = []
    for number in range(n_clips):
        family = families[number % 3]
        least = 5.1 if family == "turbo" else 1.1
        seconds = least + (longest - least) * (number * 0.618034 % 1) ** 2
        path = make_clip(number, seconds, folder)
        clips.append(Clip(path, family, folder / f"voice{number}"))
    return clips


def load_encoders(folder: Path, tokenizer: SpeechTokenizerConfig, sizes: XVectorConfig) -> Encoders:
    with torch.device("meta"):
        encoders = Encoders(SpeechTokenizer(tokenizer), SpeakerEncoder(), XVector(sizes))
    s3gen = folder / "s3gen.safetensors"
    for part, module in (
        (encoders.tokenizer, speech_tokenizer),
        (encoders.xvector, xvector),
    ):
        load_into(part, s3gen, prefix=module.PREFIX, dead=module.DEAD_TENSORS)
    load_into(encoders.speaker, folder / "ve.safetensors", dead=speaker_encoder.DEAD_TENSORS)
    return encoders


def error(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours.double() - theirs.double()).abs().max())


def compare(
    clips: list[Clip], tokenizer: SpeechTokenizerConfig, sizes: XVectorConfig, run: Run, work: Path
) -> None:
    run(clips, {"tokenizer": tokenizer, "xvector": sizes})
    encoders = load_encoders(work, tokenizer, sizes)
    levels: list[Tensor] = []
    encoders.tokenizer.quantizer.register_forward_hook(lambda _m, _i, out: levels.append(out))
    worst = dict.fromkeys([*BARS, "levels"], 0.0)
    margin, n_tokens, distinct, wrong = 1.0, 0, set[int](), []
    for clip in clips:
        theirs = load_file(clip.voice)
        levels.clear()
        wave = files.read(clip.path, 24_000)
        voice = clone(theirs["wave"].numpy(), encoders, clip.family)
        found = {
            "wave": error(torch.from_numpy(wave), theirs["wave"]),
            "mel": error(torch.from_numpy(voice.flow.mel), theirs["mel"]),
            "speaker": error(torch.from_numpy(voice.t3.speaker), theirs["speaker"]),
            "xvector": error(torch.from_numpy(voice.flow.xvector), theirs["xvector"]),
        }
        for ours, name in zip(levels, ("t3_levels", "flow_levels"), strict=True):
            found["levels"] = max(found.get("levels", 0.0), error(ours[0], theirs[name]))
            margin = min(margin, float((ours.abs() - 0.5).abs().min()))
        worst = {name: max(value, found[name]) for name, value in worst.items()}
        for tokens, name in ((voice.t3.tokens, "t3_tokens"), (voice.flow.tokens, "flow_tokens")):
            n_tokens += len(tokens)
            distinct |= set(tokens.tolist())
            if not np.array_equal(tokens, theirs[name].numpy()):
                wrong.append(f"{name} of {clip.path.name}")
    print(f"{len(clips)} clips, {n_tokens} tokens, {len(distinct)} distinct; largest errors:")
    print("  " + ", ".join(f"{name} {value:.1e}" for name, value in worst.items()))
    print(f"  the nearest that a level came to a rounding edge: {margin:.1e}")
    assert not wrong, f"{len(wrong)} token rows differ: {wrong}"
    assert len(distinct) > 100
    for name, bar in BARS.items():
        assert worst[name] <= bar, name


Run = Callable[[list[Clip], dict[str, Any]], None]


@pytest.fixture
def run(run_upstream: RunUpstream, tmp_path: Path) -> Run:
    def call(clips: list[Clip], sizes: dict[str, Any]) -> None:
        job = {
            "sizes": {name: dataclasses.asdict(config) for name, config in sizes.items()},
            "seed": 5,
            "weights": str(tmp_path),
            "clips": [
                {"path": str(clip.path), "family": clip.family, "voice": str(clip.voice)}
                for clip in clips
            ],
            "recipes": [
                [str(tmp_path / f"{number}_{rate_hz}.npy") for rate_hz in (24_000, 16_000)]
                for number in range(len(RECIPE_SECONDS))
            ],
        }
        for number, seconds in enumerate(RECIPE_SECONDS):
            for rate_hz in (24_000, 16_000):
                wave = buzz(seconds, rate_hz, number)
                np.save(tmp_path / f"{number}_{rate_hz}.npy", wave)
        run_upstream("upstream_voice.py", job)

    return call


RECIPE_SECONDS = (0.7, 3.21, 8.0)
RECIPES: dict[str, tuple[float, Callable[[Tensor, Tensor], Any]]] = {  # bar; of 24 and 16 kHz
    "flow_mel": (1e-5, lambda wave, _: mel.flow_mel(wave)),
    "token_log_mel": (1e-6, lambda _, wave: mel.token_log_mel(wave)),
    "speaker_mel": (1e-5, lambda _, wave: mel.speaker_mel(wave)),
    "kaldi_fbank": (1e-5, lambda _, wave: mel.kaldi_fbank(wave)),
    "trimmed": (0.0, lambda _, wave: trim(wave)),
    "loudness": (1e-6, lambda wave, _: torch.tensor([loudness(wave.numpy(), 24_000)])),
    "soxr": (0.0, lambda wave, _: torch.tensor(files.resample(wave.numpy(), 24_000, 16_000))),
    "sinc16000": (1e-6, lambda wave, _: resample(wave, 24_000, 16_000)),
    "sinc22050": (1e-6, lambda wave, _: resample(wave, 24_000, 22_050)),
    "sinc48000": (1e-6, lambda wave, _: resample(wave, 24_000, 48_000)),
    "filters80": (1e-7, lambda *_: mel.mel_filters(24_000, 1920, 80)),
    "filters128": (1e-7, lambda *_: mel.mel_filters(16_000, 400, 128)),
    "filters40": (1e-7, lambda *_: mel.mel_filters(16_000, 400, 40)),
}


@pytest.mark.parametrize("n_clips", [21, pytest.param(N_CLIPS, marks=pytest.mark.fullsize)])
def test_scaled_down_encoders_make_the_same_voices_and_each_recipe_the_same_numbers(
    n_clips: int, run: Run, tmp_path: Path
) -> None:
    clips = make_clips(n_clips, tmp_path, longest=17.0)
    compare(clips, SMALL_TOKENIZER, SMALL_XVECTOR, run, tmp_path)
    for number in range(len(RECIPE_SECONDS)):
        theirs = load_file(tmp_path / f"recipes{number}")
        assert theirs.keys() == RECIPES.keys()
        waves = [
            torch.from_numpy(np.load(tmp_path / f"{number}_{rate_hz}.npy"))
            for rate_hz in (24_000, 16_000)
        ]
        for name, (bar, recipe) in RECIPES.items():
            worst = error(recipe(*waves), theirs[name])
            print(f"  {name} of {RECIPE_SECONDS[number]} s: {worst:.1e}")
            assert worst <= bar, name


def test_full_size_embeddings_are_the_same(run: Run, tmp_path: Path) -> None:
    clips = make_clips(3, tmp_path, longest=12.0)  # one of each kind
    compare(clips, SMALL_TOKENIZER, XVectorConfig(), run, tmp_path)


@pytest.mark.fullsize
@pytest.mark.timeout(4 * 3600)
def test_full_size_encoders_make_the_same_voices(run: Run, tmp_path: Path) -> None:
    clips = make_clips(N_CLIPS, tmp_path, longest=6.5)
    compare(clips, SpeechTokenizerConfig(), XVectorConfig(), run, tmp_path)
