"""Whether it speaks, not whether it is there; and the counters."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import numpy as np
from fastapi import APIRouter, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import JSONResponse, Response

from nightingale.errors import BusyError, NightingaleError
from nightingale.server.front import Front
from nightingale.server.utterance import Ask

_FRESH_S = 60.0  # for so long, the last word spoken says that there will be a next one
_CANARY = "Hello."
_MAX_S = 30.0


class Pulse:
    """Speaks a word when nobody has done so for a while, or when something failed since."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._lock = asyncio.Lock()

    async def check(self) -> str:
        """Empty, or what is wrong."""
        dispatcher = self._front.dispatcher
        if dispatcher.is_draining:
            return "closing"
        async with self._lock:
            heard_at, now = dispatcher.heard_at, time.monotonic()
            if heard_at > dispatcher.failed_at and now - heard_at < _FRESH_S:
                return ""
            return await self._try()

    async def _try(self) -> str:
        dispatcher = self._front.dispatcher
        if dispatcher.supervisor.pid is None and dispatcher.limits.keep_alive_s is not None:
            return ""  # it was let go on purpose, and comes when it is called
        try:
            async with asyncio.timeout(_MAX_S):
                async with dispatcher.speak(Ask({"max_tokens": 12}, [_CANARY])) as utterance:
                    async for event in utterance:
                        if isinstance(event, np.ndarray):
                            return ""
        except BusyError:
            return ""  # so busy that it must be well
        except (NightingaleError, TimeoutError) as error:
            return type(error).__name__
        return "silence"


def routes(front: Front) -> APIRouter:
    router = APIRouter(tags=["operations"])
    pulse = Pulse(front)

    @router.get("/health", responses={503: {"description": "The model does not respond."}})
    @router.get("/healthz", include_in_schema=False)
    @router.get("/health/ready", include_in_schema=False)
    @router.get("/v1/health", include_in_schema=False)
    async def health(request: Request) -> Response:
        """Readiness: generates a short test utterance if there was no speech for a minute."""
        wrong = await pulse.check()
        told: dict[str, Any] = {"status": "error" if wrong else "ok"}
        if wrong:
            request.state.code = wrong  # for the log
            return JSONResponse({**told, "reason": wrong}, 503, {"retry-after": "2"})
        return JSONResponse({**told, "model": front.dispatcher.hello.get("model")})

    @router.get("/health/live")
    async def live() -> dict[str, str]:
        """Liveness: this process responds, whatever the state of the model."""
        return {"status": "ok"}

    @router.get("/metrics", response_class=Response)
    async def metrics() -> Response:
        """Prometheus metrics."""
        return Response(generate_latest(front.meters.registry), media_type=CONTENT_TYPE_LATEST)

    return router
