"""Text tokens -> speech tokens, 25 a second."""
