"""What went wrong, in the shape that OpenAI's clients read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from nightingale.errors import (
    BusyError,
    MissingPackageError,
    NightingaleError,
    PoisonRequestError,
    RequestError,
    ResumeMismatchError,
    SpeechError,
    UnavailableError,
    VoiceError,
)
from nightingale.server.keys import QuotaError

log = logging.getLogger("nightingale.faults")


_STATUS: tuple[tuple[type[NightingaleError], int, str], ...] = (  # the first that fits
    (QuotaError, 429, "rate_limit_exceeded"),
    (UnavailableError, 503, "worker_unavailable"),
    (BusyError, 503, "overloaded"),
    (PoisonRequestError, 500, "poison_request"),  # not to be sent again as it is
    (VoiceError, 400, "voice_not_found"),
    (RequestError, 400, ""),
    (MissingPackageError, 400, ""),
    (SpeechError, 422, "no_speech"),  # another seed, text or temperature may do
)


class APIError(Exception):
    """An answer other than the one that was hoped for."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.status, self.code, self.param = status, code, param
        self.retry_after_s = retry_after_s

    @classmethod
    def of(cls, error: Exception) -> APIError:
        """The right one for what was raised; of what is not ours, nothing is disclosed."""
        if isinstance(error, APIError):
            return error
        after_s = error.retry_after_s if isinstance(error, BusyError) else None
        for kind, status, code in _STATUS:
            if isinstance(error, kind):
                return cls(status, code or type(error).__name__, str(error), retry_after_s=after_s)
        if isinstance(error, ResumeMismatchError):
            return cls(503, "resume_mismatch", str(error), retry_after_s=1.0)
        if isinstance(error, NightingaleError):
            return cls(
                503, "worker_failed", "the worker process failed; try again", retry_after_s=2.0
            )
        log.error("unexpected", exc_info=error)
        return cls(500, "internal", "internal error; it was logged")

    @property
    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        kind = kinds.get(
            self.status, "invalid_request_error" if self.status < 500 else "server_error"
        )
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    @property
    def headers(self) -> dict[str, str]:
        headers = {"x-should-retry": "true" if self.retry_after_s is not None else "false"}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(max(1, math.ceil(self.retry_after_s)))
            headers["retry-after-ms"] = str(max(1, round(1e3 * self.retry_after_s)))
        if self.status == 401:
            headers["www-authenticate"] = 'Basic realm="nightingale, the key is the password"'
        return headers

    @property
    def response(self) -> Response:
        return JSONResponse(self.body, self.status, self.headers)


async def reply_to(
    scope: Any, receive: Any, send: Any, status: int, api_error: APIError | None = None,
    headers: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    """Answer without any route."""
    response = (
        api_error.response
        if api_error is not None
        else Response(status_code=status, headers=headers)
    )
    await response(scope, receive, send)
