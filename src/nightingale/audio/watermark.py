"""Perth's implicit watermark: unheard, and found by its detector even after MP3 or G.711.

Network and weights are those of resemble-perth; they ship in this package, in half precision, made
by scripts/perth.py. Marking a piece of a clip needs to know of the rest:
- 64 ms: the window of the spectrum, 32 ms to either side of a frame;
- 150 ms: the network looks 15 frames of 10 ms to either side;
- the whole clip: frames below a twentieth of its loudest are left alone (`gate`, whose `loudest`
  a caller may set). Levels are decibels, so that hardly anything but digital silence is below.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.files import resample
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import CorruptFileError
from nightingale.nn.deterministic import Conv

WEIGHTS = Path(__file__).with_name("perth.safetensors")

RATE_HZ = 32_000
N_FFT = 2048
HOP = 320
N_BINS = 128  # the lowest 2 kHz are watermarked
WIDTH, KERNEL, DEPTH = 256, 7, 5

FLOOR_DB = -180.0  # level 0
SPAN_DB = 195.0  # level 1 is 15 dB above full scale
QUIET = 0.05  # of the loudest frame's summed level


class Watermarker:
    """Marks finished clips; holds nothing but weights."""

    def __init__(self, weights: Path = WEIGHTS) -> None:
        self.network = MarkNetwork()
        try:
            self.network.load_state_dict(load_file(weights))  # into float32, strictly
        except (FileNotFoundError, SafetensorError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise CorruptFileError(
                f"{weights} is damaged or missing ({reason}); reinstall nightingale-tts"
            ) from error
        self.network.eval()

    @torch.inference_mode()
    def apply(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        """The same clip, watermarked: 24 kHz in and out, as many samples as before.

        Perth itself cuts a clip down to whole frames of 10 ms; here the rest is kept, too.
        """
        n_samples = len(samples)
        if n_samples == 0:
            return samples.copy()
        wave = torch.from_numpy(resample(samples, SAMPLES_PER_SECOND, RATE_HZ))
        n_padded = max(len(wave), N_FFT // 2 + 1)  # a reflected edge needs that much
        spectrum = to_spectrum(F.pad(wave, (0, n_padded - len(wave))))
        watermarked = from_spectrum(turn_up(spectrum, self.change(to_levels(spectrum))), n_padded)
        return resample(watermarked.numpy(), RATE_HZ, SAMPLES_PER_SECOND)[:n_samples]

    def change(self, levels: Tensor) -> Tensor:
        """The watermark itself: (1025, T) -> (128, T), for the lowest levels; 0 in quiet frames."""
        return self.network(levels[None, :N_BINS])[0] * gate(levels)


class MarkNetwork(nn.Module):
    """Levels of the watermarked bins -> by how much each is changed."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(N_BINS, WIDTH, 1), *[(WIDTH, WIDTH, KERNEL)] * DEPTH, (WIDTH, N_BINS, 1)]
        self.layers = nn.ModuleList(_Layer(*size) for size in sizes)

    def forward(self, levels: Tensor) -> Tensor:
        """(B, 128, T) -> (B, 128, T)"""
        x = levels
        for layer in self.layers[:-1]:
            x = F.leaky_relu(layer(x), 0.01)
        return self.layers[-1](x)


class _Layer(nn.Module):
    def __init__(self, n_in: int, n_out: int, kernel: int) -> None:
        super().__init__()
        self.conv = Conv(n_in, n_out, kernel, padding=kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x)


def to_spectrum(wave: Tensor) -> Tensor:
    """(N,) at 32 kHz -> (1025, T), complex; T is N // 320 + 1"""
    return torch.stft(wave, N_FFT, HOP, window=torch.hann_window(N_FFT), return_complex=True)


def from_spectrum(spectrum: Tensor, n_samples: int) -> Tensor:
    """(1025, T) -> (N,) at 32 kHz"""
    return torch.istft(spectrum, N_FFT, HOP, window=torch.hann_window(N_FFT), length=n_samples)


def to_levels(spectrum: Tensor) -> Tensor:
    """Magnitudes in decibels, 0 at -180 dB and 1 at 15 dB."""
    magnitudes = spectrum.abs().clamp_min(10 ** (FLOOR_DB / 20))
    return (20 * magnitudes.log10() - FLOOR_DB) / SPAN_DB


def gate(levels: Tensor, loudest: Tensor | None = None) -> Tensor:
    """(1025, T) -> (T,): 1 for the frames that take the watermark, 0 for the quiet ones."""
    sums = levels.sum(dim=0)
    return (sums > QUIET * (sums.max() if loudest is None else loudest)).to(levels.dtype)


def turn_up(spectrum: Tensor, change: Tensor) -> Tensor:
    """Change the levels of the lowest bins and leave every phase, and every other bin, alone."""
    watermarked = spectrum.clone()
    watermarked[:N_BINS] *= 10 ** (change * (SPAN_DB / 20))
    return watermarked
