"""The backend `mlx`: the networks of T3, flow and vocoder on Apple Silicon, by Apple's MLX.

Only what is computed for every token, frame and sample is here. Loading, embeddings of prompts,
sampler, guard, noise, excitation, windows, states and both decoders are those of the torch backend,
on the CPU: numbers cross between the two once a token and once a stage, in memory that both share.
"""
