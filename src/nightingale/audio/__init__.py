"""Sound as such: files in and out, rates, spectra, loudness. Knows nothing of voices or models."""
