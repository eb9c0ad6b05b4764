"""Ray Serve's own answers, in the shape of the server's: Serve itself sends plain text, or nothing.

Serve wraps this around everything that it listens with: the replicas, and the proxy that takes over
while there are none. Knows nothing of Ray.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.middleware import Middleware

from nightingale.server.api_errors import APIError
from nightingale.server.middleware import App, Receive, Scope, Send

_FAILED = APIError(500, "replica_failed", "the replica failed; try again", retry_after_s=1.0)
_ERRORS = {
    408: APIError(408, "request_timeout", "it took too long; try again", retry_after_s=1.0),
    429: APIError(429, "overloaded", "all replicas are busy; try again", retry_after_s=1.0),
    500: _FAILED,
    503: APIError(503, "overloaded", "all replicas are busy; try again", retry_after_s=1.0),
}


def middlewares() -> list[Middleware]:
    """What RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH names."""
    return [Middleware(NamedErrors)]


class NamedErrors:
    """Replaces an error that is not JSON, and the want of any answer."""

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope.get("path", "").startswith("/-/"):  # Serve's own pages
            await self._app(scope, receive, send)
            return
        has_begun = is_replaced = False

        async def named(message: MutableMapping[str, Any]) -> None:
            nonlocal has_begun, is_replaced
            if message["type"] == "http.response.start":
                has_begun = True
                error = _ERRORS.get(message["status"])
                if error is not None and not _is_json(message):
                    is_replaced = True
                    await error.response(scope, receive, send)
            if not is_replaced:
                await send(message)

        try:
            await self._app(scope, receive, named)
        except Exception:
            if has_begun:
                raise  # the body ends without its end mark
        if not has_begun:
            await _FAILED.response(scope, receive, send)


def _is_json(message: MutableMapping[str, Any]) -> bool:
    headers = dict(message.get("headers") or ())
    return b"json" in headers.get(b"content-type", b"")
