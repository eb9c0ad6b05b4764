"""What every request passes before any route: an id, a size, where it comes from, whose key it has.

Pure ASGI, in front of HTTP and WebSocket alike: a route that is added is guarded without a word.
"""

from __future__ import annotations

import base64
import ipaddress
import logging
import re
import socket
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from nightingale.server.api_errors import APIError, reply_to
from nightingale.server.bodies import Bodies, too_large
from nightingale.server.connections import network_of
from nightingale.server.context import ServerContext
from nightingale.server.keys import ANYBODY, Key

log = logging.getLogger("nightingale.access")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LIVENESS = frozenset(("/health", "/healthz", "/health/live", "/health/ready", "/v1/health"))
_LOCAL = frozenset(("localhost", "127.0.0.1", "::1"))
_PAGES = frozenset(("/", "/docs"))  # which a link may open from anywhere
_PRIVATE = (".local", ".localhost", ".internal", ".home.arpa")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PRE_FLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": "authorization, content-type, cache-control, x-api-key",
    "access-control-max-age": "600",
}


class AccessMiddleware:
    """Lets through, or says why not."""

    def __init__(self, app: App, context: ServerContext) -> None:
        self._app, self._context = app, context
        config = context.config
        limits = config.connections
        self._bodies = Bodies(config.max_json, config.max_body, limits.body_s, limits.min_body_rate)
        self._own_names = frozenset((config.host.lower(), *_names_of_this_machine()))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        given = headers.get("x-request-id", "")
        request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        stamp = {"x-request-id": request_id, **self._corp, **self._cors(headers)}
        try:
            self._check_origin(scope, headers)
            if scope["type"] == "http" and scope["method"] == "OPTIONS" and "origin" in headers:
                await reply_to(scope, receive, _stamped(send, {**stamp, **_PRE_FLIGHT}), 204)
                return
            key = self._key(scope, headers)
            self._check_size(scope, headers)
        except APIError as api_error:
            await _refuse(scope, receive, _stamped(send, stamp), api_error)
            self._context.metrics.refused.labels(str(api_error.status)).inc()
            _note_refusal(scope, request_id, api_error.status, api_error.code)
            return
        state = scope.setdefault("state", {})
        state.update(request_id=request_id, key=key)
        _read_as_json(scope, headers)
        stamped = _stamped(send, stamp, state)
        address = network_of((scope.get("client") or ("", 0))[0])
        body = self._bodies.bounded(scope["path"], address, receive)
        try:
            is_http = scope["type"] == "http"
            await self._app(scope, body.receive if is_http else receive, stamped)
        finally:
            body.release()
            if state.get("status", 200) >= 400:
                self._context.metrics.refused.labels(str(state["status"])).inc()
                _note_refusal(scope, request_id, state["status"], state.get("code", ""))

    def _check_origin(self, scope: Scope, headers: dict[str, str]) -> None:
        """A page from elsewhere cannot ask in the name of whoever looks at it."""
        host = _name(f"//{headers.get('host', '')}")
        if not self._is_allowed_host(host):
            raise APIError(
                403,
                "host",
                f"the host name {host[:100]!r} is not allowed; ask for localhost, or start "
                f"`nightingale serve` with --allowed-host {host[:100] or 'NAME'}",
            )
        has_origin = "origin" in headers
        if has_origin and not self._is_welcome(headers):
            raise APIError(
                403,
                "origin",
                f"the browser origin {headers['origin'][:100]!r} is not allowed; "
                "start `nightingale serve` with --origin to allow it",
            )
        # Browsers name no origin when a page of another site loads an image or a sound from here.
        is_foreign = headers.get("sec-fetch-site", "").lower() in ("cross-site", "same-site")
        is_link = headers.get("sec-fetch-mode") == "navigate" and scope["path"] in _PAGES
        if (
            is_foreign
            and not has_origin
            and not is_link
            and "*" not in self._context.config.origins
        ):
            raise APIError(
                403,
                "origin",
                "a page of another site may not send this request; start `nightingale serve` with "
                "--origin to allow it, and set crossorigin on audio elements",
            )

    def _is_allowed_host(self, host: str) -> bool:
        """A page whose own name resolves to this server (DNS rebinding) has that name in Host."""
        config = self._context.config
        allowed = config.allowed_hosts
        if host in _LOCAL or "*" in allowed or host in allowed or host in self._own_names:
            return bool(host)
        if any(name.startswith("*.") and host.endswith(name[1:]) for name in allowed):
            return True
        # Addresses need no DNS, and Kubernetes' probes ask by address.
        return not config.is_local and (_is_address(host) or _is_private_name(host))

    def _is_welcome(self, headers: dict[str, str]) -> bool:
        origin, config = headers["origin"], self._context.config
        is_same = origin.partition("://")[2] == headers.get("host")
        is_near = config.is_local and _name(origin) in _LOCAL  # another program of this machine
        return is_same or is_near or origin in config.origins or "*" in config.origins

    @property
    def _corp(self) -> dict[str, str]:
        is_open = "*" in self._context.config.origins
        return {"cross-origin-resource-policy": "cross-origin" if is_open else "same-origin"}

    def _cors(self, headers: dict[str, str]) -> dict[str, str]:
        if "origin" not in headers or not self._is_welcome(headers):
            return {}
        exposed = (
            "x-request-id, x-seed, x-sample-rate, x-plan, x-real-time-factor, x-unspoken, "
            "x-fingerprint, x-moved, server-timing"
        )
        return {
            "access-control-allow-origin": headers["origin"],
            "access-control-expose-headers": exposed,
            "vary": "origin",
        }

    def _key(self, scope: Scope, headers: dict[str, str]) -> Key:
        if not self._context.keys or scope["path"] in LIVENESS:
            return ANYBODY
        found = self._context.keys.find(_given_key(headers))
        if found is None:
            raise APIError(
                401, "invalid_api_key", "an API key is required: Authorization: Bearer KEY"
            )
        return found

    def _check_size(self, scope: Scope, headers: dict[str, str]) -> None:
        given, most = headers.get("content-length", "0"), self._bodies.max_bytes(scope["path"])
        if given.isascii() and given.isdigit() and int(given) > most:
            raise APIError(413, "too_large", too_large(most))


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_private_name(host: str) -> bool:
    """A name that no public DNS server can answer for: of containers, pods and home networks."""
    return bool(host) and ("." not in host or host.endswith(_PRIVATE))


def _names_of_this_machine() -> list[str]:
    name = socket.gethostname().lower()
    return [name, f"{name.partition('.')[0]}.local"]


def _given_key(headers: dict[str, str]) -> str:
    """A bearer's, a header of its own, or the password that a browser asked a person for."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(value, validate=True).decode().partition(":")[2]
        except ValueError:  # not base64, or not UTF-8
            return ""
    return headers.get("x-api-key", "")


def _name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _read_as_json(scope: Scope, headers: dict[str, str]) -> None:
    """What `curl -d` sends is called a form, and a body without any type is JSON here, too.

    Browsers may send forms to other sites, which is why this comes after the origin was checked.
    """
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if scope.get("method") == "POST" and kind in ("", "application/x-www-form-urlencoded"):
        others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
        scope["headers"] = [*others, (b"content-type", b"application/json")]


def _note_refusal(scope: Scope, request_id: str, status: int, code: str) -> None:
    """Never with a key or a text."""
    level = logging.WARNING if status in (401, 403) or status >= 500 else logging.INFO
    extra = {"request": request_id, "status": status, "code": code, "path": scope["path"][:200]}
    log.log(level, "refused", extra=extra)


def _stamped(send: Send, stamp: dict[str, str], state: dict[str, Any] | None = None) -> Send:
    """Adds headers to the answer, and writes its status down in `state`."""
    fresh = [(name.encode(), value.encode("latin-1")) for name, value in stamp.items()]

    async def stamped(message: MutableMapping[str, Any]) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            message = {**message, "headers": [*message.get("headers", []), *fresh]}
            if state is not None:
                state["status"] = message["status"]
        await send(message)

    return stamped


async def _refuse(scope: Scope, receive: Receive, send: Send, api_error: APIError) -> None:
    if scope["type"] == "websocket":
        await receive()  # that it wants to connect
        await send({"type": "websocket.close", "code": 1008})
        return
    await reply_to(scope, receive, send, api_error.status, api_error)
