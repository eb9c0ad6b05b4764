"""Our mark against Perth's: the same numbers, and Perth's own detector hears it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

from nightingale.audio.encode import encode_whole
from nightingale.audio.files import resample
from nightingale.audio.streaming_watermark import WatermarkState, watermark_next
from nightingale.audio.watermark import Watermarker
from tests.parity.conftest import RunUpstream

pytestmark = pytest.mark.parity

Clips = dict[str, NDArray[np.float32]]

SPEAKERS = {  # seed, seconds, pitch in Hz
    "low": (0, 2.0, 110),
    "high": (1, 3.7, 220),
    "short": (2, 1.0, 150),
    "long": (3, 5.0, 90),
    "odd": (4, 1.01404, 180),  # 24,337 samples: Perth gives 24,240 back
}
PHONE = {"format": "RAW", "subtype": "ULAW", "samplerate": 8_000, "channels": 1}
FULL_BAR, SHIPPED_BAR = 2e-6, 1e-4  # largest error with weights in full and in half precision
N_EDGE = 480  # samples: where Perth's cut changes what its resampler does at the end


def babble(seed: int, seconds: float, pitch: float) -> NDArray[np.float32]:
    """Syllables of a buzzing voice with two formants, breath and pauses."""
    t = np.arange(round(seconds * 24_000)) / 24_000
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.1 * np.sin(4.4 * t + seed))) / 24_000
    hz = pitch * np.arange(1, 30)
    formants = np.exp(-(((hz - 600) / 500) ** 2)) + 0.3 * np.exp(-(((hz - 1800) / 700) ** 2))
    k = np.arange(1, 30)[:, None]
    voice = (formants[:, None] / k * np.sin(k * phase)).sum(axis=0)
    breath = 0.02 * np.random.default_rng(seed).standard_normal(len(t))
    spoken = voice * np.clip(np.sin(10.7 * t + seed), 0, 1) ** 0.5
    sound = spoken + breath * np.clip(np.sin(14.5 * t), 0, 1)
    samples: NDArray[np.float32] = (0.3 * sound / np.abs(sound).max()).astype(np.float32)
    return samples


@pytest.fixture(scope="module")
def clips() -> Clips:
    return {name: babble(*speaker) for name, speaker in SPEAKERS.items()}


def stored(clips: Clips, path: Path) -> str:
    save_file({name: torch.from_numpy(clip.copy()) for name, clip in clips.items()}, path)
    return str(path)


def test_marks_are_the_same_as_perths(
    run_upstream: RunUpstream, clips: Clips, tmp_path: Path
) -> None:
    watermarked, weights = tmp_path / "watermarked.safetensors", tmp_path / "weights.safetensors"
    to_mark = stored(clips, tmp_path / "clips.safetensors")
    job = {"to_mark": to_mark, "watermarked": str(watermarked), "weights": str(weights)}
    run_upstream("upstream_watermark.py", job)
    theirs = {name: clip.numpy() for name, clip in load_file(watermarked).items()}
    full, shipped = Watermarker(weights), Watermarker()
    print(f"\n{'clip':8}{'samples':>9}{'mark':>10}{'full':>10}{'shipped':>10}")
    for name, clip in clips.items():
        n = len(theirs[name]) - (N_EDGE if len(theirs[name]) < len(clip) else 0)
        assert len(clip) - n < N_EDGE + 240
        sizes = [
            float(np.abs(a[:n] - theirs[name][:n]).max())
            for a in (clip, full.apply(clip), shipped.apply(clip))
        ]
        print(f"{name:8}{len(clip):9}" + "".join(f"{size:10.1e}" for size in sizes))
        assert sizes[0] > 1e-2, "there is a mark to compare"
        assert sizes[1] < FULL_BAR, name
        assert sizes[2] < SHIPPED_BAR, name


def test_perth_hears_our_mark_and_no_other(
    run_upstream: RunUpstream, clips: Clips, tmp_path: Path
) -> None:
    """Also after the usual mistreatments; a network that says nothing leaves nothing to hear."""
    ours, mute = Watermarker(), Watermarker()
    for parameter in mute.network.parameters():
        parameter.data.zero_()
    to_hear: Clips = {}
    for name, clip in clips.items():
        watermarked = ours.apply(clip)
        phone = resample(decoded(encode_whole([watermarked], "mulaw"), **PHONE), 8_000, 24_000)
        to_hear |= {
            f"{name} watermarked": watermarked,
            f"{name} watermarked as it came": watermarked_as_it_comes(ours, clip),
            f"{name} in 16 bits": decoded(encode_whole([watermarked], "wav")),
            f"{name} as mp3": decoded(encode_whole([watermarked], "mp3")),
            f"{name} on the phone": phone,
            f"{name} plain": clip,
            f"{name} plain as mp3": decoded(encode_whole([clip], "mp3")),
            f"{name} mute": mute.apply(clip),
        }
    heard = run_upstream(
        "upstream_watermark.py", {"to_hear": stored(to_hear, tmp_path / "clips.safetensors")}
    )
    for name, word in heard.items():
        print(f"{name:26}{word:7.3f}")
    for name, word in heard.items():
        if "plain" in name or "mute" in name:
            assert word < 0.3, name
        else:
            assert word > 0.9, name


def watermarked_as_it_comes(marker: Watermarker, clip: NDArray[np.float32]) -> NDArray[np.float32]:
    """In pieces as short as a stream begins with."""
    state, pieces = WatermarkState.start(), []
    for at in range(0, len(clip), 4800):
        is_last = at + 4800 >= len(clip)
        piece, state = watermark_next(marker, clip[at : at + 4800], state, is_last=is_last)
        pieces.append(piece)
    return np.concatenate(pieces)


def decoded(data: bytes, **raw: Any) -> NDArray[np.float32]:
    samples, _ = soundfile.read(io.BytesIO(data), dtype="float32", **raw)
    return samples  # type: ignore[no-any-return]
