"""The transform by tables is the transform of the textbook, up to the very ends."""

from __future__ import annotations

import pytest
import torch

from nightingale.backends.torch.vocoder.stft import istft, stft

WINDOW = torch.hann_window(16, dtype=torch.float64)
LENGTHS = [12, 16, 20, 480, 4800]


def drawn(n_rows: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(shape[-1])
    return torch.randn(n_rows, *shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_frames_are_those_of_a_centered_mirrored_fft(n_samples: int) -> None:
    samples = drawn(2, n_samples)
    wanted = torch.stft(samples, 16, 4, 16, WINDOW, return_complex=True)
    got = stft(samples)
    assert got.shape == (2, 18, n_samples // 4 + 1)
    assert torch.allclose(got, torch.cat((wanted.real, wanted.imag), dim=1), atol=1e-13)


@pytest.mark.parametrize("n_samples", LENGTHS)
def test_samples_are_those_of_an_inverse_fft_for_any_spectrum(n_samples: int) -> None:
    """Also where no signal has such a spectrum: the model makes it up, and each end is a quirk."""
    spectrum = drawn(2, 18, n_samples // 4 + 1)
    wanted = torch.istft(torch.complex(spectrum[:, :9], spectrum[:, 9:]), 16, 4, 16, WINDOW)
    got = istft(spectrum)
    assert got.shape == (2, n_samples)
    assert torch.allclose(got, wanted, atol=1e-13)


def test_there_and_back_again_is_the_signal() -> None:
    samples = drawn(1, 960)
    assert torch.allclose(istft(stft(samples)), samples, atol=1e-13)
    low = samples.float()
    assert torch.allclose(istft(stft(low)), low, atol=1e-5)
    assert stft(low).dtype == torch.float32
