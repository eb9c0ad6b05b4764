"""The flow's mel of training speech stands frame by frame beside the mel of that speech."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nightingale.audio.mel import flow_mel as mel_of
from nightingale.measure.stages import torch_stages
from nightingale.pipeline import Nightingale
from nightingale.weights.manifest import BUNDLE
from training.flow_mel import match_level, resynthesized


def test_level_is_that_of_the_speech() -> None:
    spoken = torch.full((80, 10), -5.0)
    spoken[:, :3] = -11.0  # silence does not count
    made = torch.full((80, 10), -6.0)
    assert torch.allclose(match_level(made, spoken), made + 1)


def test_silence_is_left_as_it_is() -> None:
    made = torch.randn(80, 10)
    assert torch.equal(match_level(made, torch.full((80, 10), -11.0)), made)


@pytest.mark.slow
def test_resynthesized_speech_is_near_the_mel_of_that_speech() -> None:
    tts = Nightingale.load(BUNDLE, device="cpu", watermark=False)
    samples = np.round(tts.say("The lamp is on.", seed=1).samples * 32767).astype(np.int16)
    samples = samples[: len(samples) // 960 * 960]
    mel = mel_of(torch.from_numpy(samples / np.float32(32767))).T
    stages, prompt = torch_stages(tts.components), tts.components.voice.flow
    made = resynthesized(stages, prompt, samples, mel, seed=2)
    assert made.shape == mel.shape
    off, shuffled = (made - mel).abs().mean(), (made.roll(20, dims=1) - mel).abs().mean()
    assert off < 0.7 * shuffled
