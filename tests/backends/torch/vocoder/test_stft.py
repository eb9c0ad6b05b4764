"""The transform by tables is the transform of the textbook, up to the very ends."""

from __future__ import annotations

import pytest
import torch

from nightingale.backends.torch.vocoder.stft import HOPS, istft, n_bins, stft

N_HOPS = [3, 4, 5, 120, 1200]
HOP_SIZES = pytest.mark.parametrize("hop", [4, 5])


def drawn(n_rows: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(shape[-1])
    return torch.randn(n_rows, *shape, generator=generator, dtype=torch.float64)


def window(hop: int) -> torch.Tensor:
    return torch.hann_window(HOPS * hop, dtype=torch.float64)


@HOP_SIZES
@pytest.mark.parametrize("n_hops", N_HOPS)
def test_frames_are_those_of_a_centered_mirrored_fft(n_hops: int, hop: int) -> None:
    samples, n_fft = drawn(2, n_hops * hop), HOPS * hop
    wanted = torch.stft(samples, n_fft, hop, n_fft, window(hop), return_complex=True)
    got = stft(samples, hop)
    assert got.shape == (2, 2 * n_bins(hop), n_hops + 1)
    assert torch.allclose(got, torch.cat((wanted.real, wanted.imag), dim=1), atol=1e-13)


@HOP_SIZES
@pytest.mark.parametrize("n_hops", N_HOPS)
def test_samples_are_those_of_an_inverse_fft_for_any_spectrum(n_hops: int, hop: int) -> None:
    """Also where no signal has such a spectrum: the model makes it up, and each end is a quirk."""
    spectrum, n_fft = drawn(2, 2 * n_bins(hop), n_hops + 1), HOPS * hop
    wanted = torch.istft(torch.complex(*spectrum.chunk(2, 1)), n_fft, hop, n_fft, window(hop))
    got = istft(spectrum, hop)
    assert got.shape == (2, n_hops * hop)
    assert torch.allclose(got, wanted, atol=1e-13)


@HOP_SIZES
def test_there_and_back_again_is_the_signal(hop: int) -> None:
    samples = drawn(1, 960)
    assert torch.allclose(istft(stft(samples, hop), hop), samples, atol=1e-13)
    low = samples.float()
    assert torch.allclose(istft(stft(low, hop), hop), low, atol=1e-5)
    assert stft(low, hop).dtype == torch.float32
