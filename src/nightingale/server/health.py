"""Liveness, readiness and a test utterance; and the counters.

/health/live     this process responds
/health/ready    requests would be served: cheap, may be asked each second
/health          speech was made just now, or is made for this answer
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from nightingale.errors import BusyError, NightingaleError
from nightingale.server.breaker import BreakerState
from nightingale.server.context import ServerContext
from nightingale.server.dispatch import Dispatcher
from nightingale.server.supervisor import WorkerState
from nightingale.server.worker_request import WorkerRequest

_FRESH_S = 60.0  # audio that is not older says that there will be more
_CANARY = "Hello."
_CANARY_S = 30.0
_CAN_SERVE = (WorkerState.READY, WorkerState.IDLE, WorkerState.STARTING)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Healthy, or why not."""

    worker: str  # its state
    reason: str = ""  # a word; empty: healthy
    detail: str = ""
    retry_after_s: float = 2.0


def readiness(dispatcher: Dispatcher) -> Verdict:
    """Whether requests would be served now: a worker is there, or can be started when it is needed;
    the server is not draining, and the circuit breaker is closed."""
    supervisor, breaker = dispatcher.supervisor, dispatcher.supervisor.breaker
    state = supervisor.state
    if dispatcher.is_draining:
        return Verdict(state, "draining")
    if breaker.state is not BreakerState.CLOSED:
        reason = f"circuit_breaker_{breaker.state.replace('-', '_')}"
        return Verdict(state, reason, breaker.reason, max(1.0, breaker.wait_s))
    if state not in _CAN_SERVE:
        return Verdict(state, f"worker_{state}", breaker.reason)
    return Verdict(state)


class Canary:
    """A test utterance, made when nobody else has been speaking, one for all who ask."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        self._running: asyncio.Task[str] | None = None

    async def check(self) -> Verdict:
        """Readiness, and audio that was made lately or is made now."""
        dispatcher, ready = self._dispatcher, readiness(self._dispatcher)
        if dispatcher.is_draining or ready.worker == WorkerState.UNAVAILABLE:
            return ready
        heard_at = dispatcher.heard_at
        is_fresh = time.monotonic() - heard_at < _FRESH_S and heard_at > dispatcher.failed_at
        if is_fresh or ready.worker == WorkerState.IDLE:
            return ready
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._speak())
        reason = await asyncio.shield(self._running)
        return Verdict(dispatcher.supervisor.state, reason, ready.detail)

    async def _speak(self) -> str:
        """Empty, or what went wrong."""
        dispatcher, begun = self._dispatcher, time.monotonic()
        try:
            async with asyncio.timeout(_CANARY_S):
                async with dispatcher.speak_at_once(
                    WorkerRequest({"max_tokens": 12}, [_CANARY])
                ) as spoken:
                    async for event in spoken:
                        if isinstance(event, np.ndarray):
                            return ""
        except TimeoutError:
            return "" if dispatcher.heard_at > begun else "canary_timeout"  # others were served
        except BusyError:
            return "unavailable"
        except NightingaleError:
            return "canary_failed"
        return "canary_silent"


def _answer(request: Request, context: ServerContext, verdict: Verdict) -> Response:
    body: dict[str, Any] = {"status": "error" if verdict.reason else "ok"}
    body |= {"model": context.dispatcher.hello.get("model"), "worker": verdict.worker}
    if not verdict.reason:
        return JSONResponse(body)
    request.state.code = verdict.reason  # for the log
    after = {"retry-after": str(round(verdict.retry_after_s))}
    return JSONResponse({**body, "reason": verdict.reason}, 503, after)


def routes(context: ServerContext) -> APIRouter:
    router = APIRouter(tags=["operations"])
    canary = Canary(context.dispatcher)

    @router.get("/health", responses={503: {"description": "The model does not respond."}})
    @router.get("/healthz", include_in_schema=False)
    @router.get("/v1/health", include_in_schema=False)
    async def health(request: Request) -> Response:
        """Deep check: generates a short test utterance if there was no speech for a minute."""
        return _answer(request, context, await canary.check())

    @router.get("/health/ready", responses={503: {"description": "Requests would not be served."}})
    async def ready(request: Request) -> Response:
        """Readiness: a worker is there or can be started, and the server is not draining."""
        return _answer(request, context, readiness(context.dispatcher))

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """Liveness: this process responds, whatever the state of the model."""
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(context.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return router
