"""The slots' step as a CUDA graph: captured once for each capacity, replayed from then on.

A graph launches a step's hundreds of kernels at once, so that a GPU does not wait for Python.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nightingale.backends.torch.t3.slots import SlotStep

_N_WARM = 3  # steps before a capture, in which libraries allocate what they need


class CapturedStep:
    """`SlotStep.forward`, replayed. What a graph reads and writes must stay where it is."""

    def __init__(self, step: SlotStep) -> None:
        self._step = step
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def __call__(self, capacity: int) -> Tensor:
        if capacity not in self._graphs:
            self._graphs[capacity] = self._capture(capacity)
        graph, out = self._graphs[capacity]
        graph.replay()
        return out

    def _capture(self, capacity: int) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """While nobody is active, so that no slot goes on."""
        step, graph = self._step, torch.cuda.CUDAGraph()
        active = step.active.clone()
        step.active.zero_()
        side = torch.cuda.Stream(step.active.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_N_WARM):
                step(capacity)
        torch.cuda.current_stream().wait_stream(side)
        with torch.cuda.graph(graph):
            out = step(capacity)
        step.active.copy_(active)
        return graph, out
