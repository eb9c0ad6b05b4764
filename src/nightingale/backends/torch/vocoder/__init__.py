"""Mel frames, 50 a second -> samples, 24,000 a second."""
