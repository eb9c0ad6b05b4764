"""What this machine could do at best, measured here and now: read memory, multiply matrices.

A stage is judged by how near it comes to these, in the same process and the same minute: absolute
times of a noisy machine mean nothing the day after.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from nightingale.nn.device import HOST

SIDE = 2048  # of the square matrices: large enough for the best rate, small enough to be quick
MAX_BYTES = 2**29  # read at once at most; more of the same takes proportionally longer
N_TRIES = 5


def stream_ms(n_bytes: int, device: torch.device = HOST) -> float:
    """How long a device takes to read so many bytes from its memory, once."""
    n_read = min(n_bytes, MAX_BYTES)
    # Far more than any cache holds.
    numbers = torch.ones(n_read // 4, dtype=torch.float32, device=device)
    return best_ms(numbers.sum) * n_bytes / n_read


def product_flops(dtype: torch.dtype, device: torch.device) -> float:
    """Floating-point operations per second in a bare product of large square matrices."""
    left, right = (torch.ones(SIDE, SIDE, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(left)

    def multiply() -> Tensor:
        return torch.mm(left, right, out=out)

    return 2 * SIDE**3 / (best_ms(multiply) / 1e3)


def best_ms(run: Callable[[], Tensor]) -> float:
    """The shortest of a few tries; reading a number of the result waits for any device."""
    times = []
    for _ in range(1 + N_TRIES):
        started = time.perf_counter()
        run().flatten()[0].item()
        times.append(time.perf_counter() - started)
    return 1e3 * min(times[1:])
