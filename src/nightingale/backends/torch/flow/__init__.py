"""Speech tokens -> mel frames, 50 a second."""
