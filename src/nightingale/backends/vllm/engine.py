"""T3 behind the backend interface, computed by vLLM's engine.

vLLM decides how requests share a step, whose pages are kept and who is preempted. Requests that
nobody asks for are held: they keep their pages and get no token, until a step comes to nothing
because of them.
"""

from __future__ import annotations

import gc
import queue
import sys
import weakref
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from nightingale.backends.base import TokenEvent, TokenRequest
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.vllm import batch as batches
from nightingale.backends.vllm.batch import Batch, LiveSequence
from nightingale.backends.vllm.prompt import prompt_embeddings
from nightingale.backends.vllm.start import EngineLimits, start_engine
from nightingale.core import END_OF_SPEECH, T3Prompt
from nightingale.errors import NightingaleError

_NEVER = sys.maxsize  # a step of the scheduler that does not come


@dataclass(slots=True, eq=False)
class _Request:
    """A request that was taken, inside vLLM or not yet."""

    number: int
    asked: TokenRequest
    sequence: LiveSequence | None = None  # None: nobody asked for its first token yet
    vllm_id: str = ""
    events: deque[TokenEvent] = field(default_factory=deque)  # that were not asked for yet
    n_events: int = 0


class VllmTokenEngine:
    """Text tokens -> speech tokens, by continuous batching."""

    def __init__(self, t3: T3, weights: Path, dtype: str, limits: EngineLimits) -> None:
        """`t3` makes prompts and samplers; its layers are not used."""
        self._t3 = t3
        self._batch = Batch()
        key = batches.register(self._batch)
        self._engine = start_engine(weights, t3.config, dtype, limits, key)
        client = self._engine.engine_core
        client._finalizer.detach()  # it would end what all engines of this process share
        weakref.finalize(self, _close, client.engine_core, key)
        self._numbers = count(1)
        self._requests: dict[int, _Request] = {}
        self._cancelled: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._must_reset = False  # of what is cached, something is to be forgotten

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: TokenRequest) -> int:
        self._t3.check(request.text, request.options)
        number = next(self._numbers)
        self._requests[number] = _Request(number, request)
        return number

    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        self._drop_cancelled()
        requests = [self._requests[number] for number in numbers]
        for request in requests:
            if request.sequence is None:
                self._begin(request)
        holds = True
        while missing := [one for one in requests if not one.events]:
            self._hold(missing if holds else list(self._requests.values()))
            holds &= self._advance()
        events = [self._next_event(request) for request in requests]
        self._reset()
        return events

    def cancel(self, number: int) -> None:
        self._cancelled.put(number)  # vLLM's engine belongs to the thread that steps

    def forget(self, prompt: T3Prompt) -> None:  # noqa: ARG002
        """Pages have no voice's name on them, so those of all are dropped, when nobody uses one."""
        self._must_reset = True
        self._drop_cancelled()

    @property
    def _scheduler(self) -> Any:
        return self._engine.engine_core.engine_core.scheduler

    def _begin(self, request: _Request) -> None:
        """Hand it to vLLM; what goes wrong is its own."""
        try:
            request.sequence = self._submit(request)
        except Exception as error:
            request.events.append(TokenEvent.failed(request.number, error))

    def _submit(self, request: _Request) -> LiveSequence:
        from vllm import SamplingParams  # noqa: PLC0415 - imported by whoever made the engine
        from vllm.sampling_params import RequestOutputKind  # noqa: PLC0415

        asked, config = request.asked, self._t3.config
        options, heads, n_text = asked.options, config.alignment_heads, len(asked.text)
        embeddings, n_voice = prompt_embeddings(
            self._t3, asked.prompt, asked.text, options.exaggeration
        )
        guard = Guard(heads, n_text) if options.guard and heads else None
        if guard:
            guard.alignment.text = (n_voice, n_voice + n_text)
        sampler = self._t3.sequence_sampler(options, guard, asked.forced)
        sequence = LiveSequence(request.number, len(embeddings), options.cfg_weight, sampler, guard)
        self._batch.live[request.number] = sequence
        request.vllm_id = self._engine.add_request(
            str(request.number),
            {"prompt_embeds": embeddings},
            SamplingParams(
                temperature=0.0,  # of the one token that our sampler leaves
                max_tokens=min(options.max_tokens, config.max_speech),
                stop_token_ids=[END_OF_SPEECH],
                detokenize=False,
                output_kind=RequestOutputKind.DELTA,
                extra_args={"number": request.number},
            ),
        )
        return sequence

    def _hold(self, wanted: Collection[_Request]) -> None:
        """Let the scheduler pass over everybody else's turn."""
        ids = {request.vllm_id for request in wanted}
        for name, one in self._scheduler.requests.items():
            one.next_decode_eligible_step = 0 if name in ids else _NEVER

    def _advance(self) -> bool:
        """One step of vLLM; False: nobody has got a token by it."""
        if not self._engine.has_unfinished_requests():
            raise NightingaleError("vLLM lost a request that has not ended: load the model anew")
        outputs = self._engine.step()
        for output in outputs:
            request = self._requests.get(int(output.request_id))
            if request is not None:
                self._collect(request, output)
        return bool(outputs)

    def _collect(self, request: _Request, output: Any) -> None:
        sequence, (given,) = request.sequence, output.outputs
        assert sequence is not None
        if sequence.error is not None:
            request.events.append(TokenEvent.failed(request.number, sequence.error))
            return
        guard, tokens = sequence.guard, list(given.token_ids)
        for n_left, token in zip(reversed(range(len(tokens))), tokens, strict=True):
            position = guard.places[request.n_events] if guard else None
            is_said = not (token == END_OF_SPEECH and guard and not guard.is_said)
            is_last = output.finished and not n_left
            request.n_events += 1
            request.events.append(TokenEvent(request.number, token, position, is_last, is_said))

    def _next_event(self, request: _Request) -> TokenEvent:
        event = request.events.popleft()
        if event.is_last:
            self._drop(request)
        return event

    def _drop_cancelled(self) -> None:
        while not self._cancelled.empty():
            if request := self._requests.get(self._cancelled.get()):
                self._drop(request)
        self._reset()

    def _drop(self, request: _Request) -> None:
        del self._requests[request.number]
        if self._batch.live.pop(request.number, None) is not None:
            self._engine.abort_request([request.vllm_id], internal=True)

    def _reset(self) -> None:
        if self._must_reset and not self._batch.live:
            self._must_reset = not self._engine.reset_prefix_cache()


def _close(engine_core: Any, key: int) -> None:
    """Free the memory of one engine; the last one ends the process groups of all."""
    batches.unregister(key)
    if batches.n_registered():
        engine_core.model_executor.shutdown()
        engine_core.scheduler.shutdown()
        gc.unfreeze()  # vLLM froze what it made at its start
    else:
        engine_core.shutdown()
