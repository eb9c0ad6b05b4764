"""Parts that two stages or more are made of. Knows nothing of any stage."""
