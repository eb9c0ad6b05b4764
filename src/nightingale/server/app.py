"""The application: every route, behind the gate."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from nightingale import __version__
from nightingale.errors import NightingaleError
from nightingale.server import chatterbox, health, models_and_voices, page, speech, websocket
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext
from nightingale.server.middleware import AccessMiddleware

_CODES = {
    404: "not_found",
    405: "method_not_allowed",
    408: "timeout",
    413: "too_large",
    503: "overloaded",
}


def make_app(context: ServerContext) -> AccessMiddleware:
    """One server's; its worker is somebody else's affair."""
    app = FastAPI(
        title="Nightingale",
        version=__version__,
        description="Streaming text to speech for the Chatterbox family.",
        docs_url=None,  # they fetch scripts from elsewhere
        redoc_url=None,
    )
    for kind in (APIError, NightingaleError):
        app.add_exception_handler(kind, _error_response)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(HTTPException, _missed)
    for room in (speech, models_and_voices, chatterbox, health, websocket, page):
        app.include_router(room.routes(context))
    return AccessMiddleware(app, context)


async def _error_response(request: Request, error: Exception) -> Response:
    return _answer(request, APIError.of(error))


def _answer(request: Request, api_error: APIError) -> Response:
    request.state.code = api_error.code  # for the log
    return api_error.response


async def _misread(request: Request, error: Exception) -> Response:
    """A field is missing or of another kind: which one, and not what stood in it."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid" or (
        first["loc"] == ("body",) and first["type"] != "missing"
    ):
        message = "the body is not a JSON object; send one, with content-type: application/json"
        return _answer(request, APIError(400, "invalid_json", message, param="body"))
    where = ".".join(str(part) for part in first["loc"][1:]) or "body"
    message = f"{where}: {first['msg']}"
    return _answer(request, APIError(400, "invalid_request", message, param=where))


async def _missed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "invalid_request")
    response = _answer(request, APIError(error.status_code, code, str(error.detail)))
    response.headers.update(error.headers or {})
    return response
