"""From text to watermarked sound on full-size random weights: minutes, and three GB of disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from nightingale.core import SAMPLES_PER_TOKEN
from nightingale.pipeline import Nightingale
from tests.tiny_release import make_release

pytestmark = [pytest.mark.fullsize, pytest.mark.timeout(3600)]

TEXT = "The billing issue is resolved."
N_TOKENS = 50


def test_multilingual_says_the_same_bytes_again_and_on_one_thread(
    tmp_path: Path,
) -> None:
    folder = make_release(tmp_path / "release", "multilingual-hi", full_size=True)
    tts = Nightingale.load(folder, home=tmp_path / "home", device="cpu")
    said = []
    for n_threads in (2, 1, 2):
        torch.set_num_threads(n_threads)
        said.append(audio := tts.say(TEXT, seed=11, max_tokens=N_TOKENS))
        sha256 = hashlib.sha256(audio.samples.tobytes()).hexdigest()[:16]
        print(f"{n_threads} threads: {sha256}, {audio.seconds:.2f} s, {audio.timings}")
        assert len(audio.samples) == max(1, len(audio.tokens) - 1) * SAMPLES_PER_TOKEN
    torch.set_num_threads(1)
    two, one, again = said
    assert two.tokens == one.tokens
    assert two.samples.tobytes() == again.samples.tobytes() == one.samples.tobytes()
