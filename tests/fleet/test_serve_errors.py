"""Whatever Serve answers by itself, a client reads an error with a name."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, StreamingResponse

from nightingale.fleet.serve_errors import NamedErrors, middlewares


def test_serve_is_given_the_middleware() -> None:
    assert "NamedErrors" in str(middlewares())


def answer(app: Any, path: str = "/v1/audio/speech") -> httpx.Response:
    transport = httpx.ASGITransport(NamedErrors(app), raise_app_exceptions=True)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=transport, base_url="http://fleet") as client:
            return await client.post(path)

    return asyncio.run(ask())


async def fails(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the actor died")


async def is_silent(scope: Any, receive: Any, send: Any) -> None:
    return None


@pytest.mark.parametrize(
    ("app", "status", "code"),
    [
        (PlainTextResponse("Request dropped due to backpressure", 503), 503, "overloaded"),
        (PlainTextResponse("too many", 429), 429, "overloaded"),
        (PlainTextResponse("timed out", 408), 408, "request_timeout"),
        (PlainTextResponse("Internal Server Error", 500), 500, "replica_failed"),
        (fails, 500, "replica_failed"),
        (is_silent, 500, "replica_failed"),
    ],
)
def test_an_answer_of_serve_itself_becomes_a_named_error(app: Any, status: int, code: str) -> None:
    reply = answer(app)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code) and error["message"]
    assert reply.headers["retry-after"] == "1" and reply.headers["x-should-retry"] == "true"


def test_answers_of_the_server_and_pages_of_serve_are_left_alone() -> None:
    own = {"error": {"code": "poison_request"}}
    assert answer(JSONResponse(own, 500)).json() == own
    assert answer(PlainTextResponse("sound")).text == "sound"
    assert answer(PlainTextResponse("draining", 503), "/-/healthz").text == "draining"


def test_a_body_that_breaks_off_is_not_ended_by_an_error() -> None:
    async def pieces() -> Any:
        yield b"half"
        raise RuntimeError("the actor died")

    with pytest.raises(RuntimeError, match="the actor died"):
        answer(StreamingResponse(pieces()))
