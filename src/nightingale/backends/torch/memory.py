"""How many requests fit at once into the memory that a device has left."""

from __future__ import annotations

from nightingale.backends.torch.decoder import CONTEXT_WINDOWS
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.t3.model import T3
from nightingale.core import Plan
from nightingale.families import FamilySpec
from nightingale.nn.device import free_bytes

PROMPT_POSITIONS = 300  # of a voice and a part of a text, at most about so many


def request_bytes(t3: T3, flow: Flow, spec: FamilySpec, plan: Plan) -> int:
    """What one request keeps when it has become as long as it may: T3's keys and values, and the
    flow's of the windows that the next one sees."""
    cache = t3.cache_bytes(PROMPT_POSITIONS + spec.options.max_tokens)
    n_tokens = CONTEXT_WINDOWS * plan.window_sizes[-1] if plan.window_sizes else 0
    return cache + flow.prompt_bytes(n_tokens)


def max_requests(
    t3: T3, flow: Flow, spec: FamilySpec, plan: Plan, n_reserved_bytes: int
) -> int | None:
    """Of the free memory, without what is promised to voices; None: the device does not say."""
    free = free_bytes(t3.speech_emb.weight.device)
    if free is None:
        return None
    left = free - (n_reserved_bytes if plan.prompt_cache else 0)
    return max(1, left // request_bytes(t3, flow, spec, plan))
