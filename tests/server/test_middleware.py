"""Who is let in, and what is written down of those who are not: the real application, no model."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightingale.server import chatterbox, health, log, models_and_voices, page, speech
from nightingale.server.app import make_app
from nightingale.server.bodies import UPLOADS, ByteBudget
from nightingale.server.connections import ConnectionLimits
from nightingale.server.context import HttpConfig, ServerContext
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.keys import Keys
from nightingale.server.metrics import Metrics
from nightingale.server.middleware import AccessMiddleware
from nightingale.server.supervisor import Supervisor, WorkerConfig
from nightingale.server.voices import Voices


def make_gate(
    folder: Path, key: str | None = None, keys: Path | None = None, **config: Any
) -> AccessMiddleware:
    """A front whose worker was never started."""
    dispatcher = Dispatcher(Supervisor(WorkerConfig(folder), folder), Limits())
    voices, known = Voices(folder / "voices"), Keys.read(keys, key)
    return make_app(
        ServerContext(HttpConfig(**config), dispatcher, voices, known, Metrics(dispatcher))
    )


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> AccessMiddleware:
    """As it comes: on loopback, without keys."""
    return make_gate(tmp_path_factory.mktemp("home"))


def ask(
    gate: AccessMiddleware, method: str = "GET", path: str = "/v1/models", **more: Any
) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **more)

    return asyncio.run(send())


def status_of(gate: AccessMiddleware, host: str) -> int:
    return ask(gate, headers={"host": host}).status_code


def test_a_local_server_answers_to_names_of_this_machine_alone(gate: AccessMiddleware) -> None:
    for host in ("localhost", "localhost:8004", "127.0.0.1:9", "[::1]:8004", "LOCALHOST"):
        assert status_of(gate, host) == 200, host
    for host in ("host.docker.internal:8004", "tts.example.org", "10.0.0.7", "", "localhost.evil"):
        assert status_of(gate, host) == 403, host


def test_the_refusal_names_the_host_and_the_flag(gate: AccessMiddleware) -> None:
    reply = ask(gate, headers={"host": "host.docker.internal:8004"})
    assert reply.status_code == 403
    assert "--allowed-host host.docker.internal" in reply.json()["error"]["message"]


@pytest.mark.slow
def test_hosts_can_be_allowed_by_name_and_by_domain(tmp_path: Path) -> None:
    gate = make_gate(tmp_path, allowed_hosts=("tts.example.org", "*.lan"))
    for host in ("tts.example.org", "TTS.example.org:443", "a.lan", "a.b.lan", "localhost"):
        assert status_of(gate, host) == 200, host
    for host in ("example.org", "evil.tts.example.org", "lan", "evillan", "10.0.0.7"):
        assert status_of(gate, host) == 403, host
    assert status_of(make_gate(tmp_path, allowed_hosts=("*",)), "anything.at.all") == 200


def test_a_server_of_a_network_refuses_names_that_public_dns_can_answer_for(tmp_path: Path) -> None:
    """DNS rebinding (Ollama's CVE-2024-28224) needs such a name; probes ask by address."""
    own = socket.gethostname().lower()
    for allowed in ((), ("tts.example.org",)):
        gate = make_gate(tmp_path, host="0.0.0.0", allowed_hosts=allowed)
        for host in ("10.0.0.7:8004", "[fd00::7]:8004", "localhost", own, f"{own}:8004", "pi.local",
                     "nightingale:8004", "a.svc.cluster.local", "a.internal"):  # fmt: skip
            assert status_of(gate, host) == 200, host
        for host in ("evil.example", "localhost.evil.example", "local.evil", ""):
            assert status_of(gate, host) == 403, host
        assert status_of(gate, "tts.example.org") == (200 if allowed else 403)
    named = make_gate(tmp_path, host="tts.example.net")
    assert status_of(named, "tts.example.net:8004") == 200


SITES = ("cross-site", "same-site")


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/tts-stream?text=Hello."), ("GET", "/v1/audio/voices"), ("GET", "/metrics"),
     ("HEAD", "/"), ("DELETE", "/v1/audio/voices/anna"), ("OPTIONS", "/v1/audio/speech")],
)  # fmt: skip
def test_a_page_of_another_site_may_load_nothing(
    gate: AccessMiddleware, tmp_path: Path, site: str, method: str, path: str
) -> None:
    """<img> and <audio> send no Origin, but browsers say where the page is from."""
    facts = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors"}
    reply = ask(gate, method, path, headers=facts)
    assert reply.status_code == 403
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    near = {**facts, "origin": "http://localhost:3000"}  # another program of this machine
    assert ask(gate, "GET", "/v1/models", headers=near).status_code == 200
    gate = make_gate(tmp_path, origins=("https://a.b",))
    assert ask(gate, headers={**facts, "origin": "https://a.b"}).status_code == 200
    assert ask(gate, headers=facts).status_code == 403
    anybody = ask(make_gate(tmp_path, origins=("*",)), headers=facts)
    assert anybody.status_code == 200
    assert anybody.headers["cross-origin-resource-policy"] == "cross-origin"


def test_a_link_of_another_site_may_open_the_page_and_nothing_else(gate: AccessMiddleware) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    for path, status in (("/", 200), ("/docs", 200), ("/tts-stream?text=Hello.", 403)):
        assert ask(gate, "GET", path, headers=link).status_code == status
    own = {"sec-fetch-site": "same-origin"}
    assert (
        ask(gate, headers=own).status_code
        == ask(gate, headers={"sec-fetch-site": "none"}).status_code
        == 200
    )


@pytest.mark.parametrize(
    "headers",
    [{"origin": "http://["}, {"origin": "http://[::1"}, {"authorization": "Basic \u00e9"},
     {"authorization": "Basic ===="}, {"authorization": "Bearer \u00ff"}, {"host": "["},
     {"content-length": "\u00b2"}, {"x-request-id": "\u00e9" * 99}],
)  # fmt: skip
def test_headers_that_cannot_be_parsed_are_no_server_error(
    tmp_path: Path, headers: dict[str, str]
) -> None:
    """`urlsplit` and `b64decode` raise ValueError: 500 before any key was asked for."""
    raw = [(name, value.encode("latin-1")) for name, value in headers.items()]
    gate = make_gate(tmp_path, key="sesame")
    assert ask(gate, headers=raw).status_code in (401, 403)


def test_only_uploads_may_be_large(tmp_path: Path) -> None:
    gate = make_gate(tmp_path)
    reply = ask(gate, "POST", "/v1/audio/speech", content=b"[" * 300_000)
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "too_large")
    assert "at most 262144 bytes" in reply.json()["error"]["message"]
    longest = {"input": "\U0001f600" * 20_000}  # 12 bytes each, when escaped
    assert ask(gate, "POST", "/v1/audio/speech", json=longest).status_code != 413
    for path in UPLOADS:
        assert ask(gate, "POST", path, content=b"x" * 300_000).status_code == 400
    assert ask(gate, "POST", path, content=b"x" * (32 * 2**20 + 1)).status_code == 413


def test_every_route_that_takes_a_form_is_known_as_an_upload(tmp_path: Path) -> None:
    gate = make_gate(tmp_path)
    paths = {
        getattr(route, "path", "")
        for module in (speech, models_and_voices, chatterbox, health, page)
        for route in module.routes(gate._context).routes
        if "POST" in getattr(route, "methods", ())
    }
    form = {"files": {"x": b"x"}}
    codes = {path: ask(gate, "POST", path, **form).json()["error"]["code"] for path in paths}
    forms = {path for path, code in codes.items() if code != "invalid_json"}
    assert forms == UPLOADS


def test_bodies_that_are_being_received_are_bounded_in_sum_and_per_address() -> None:
    budget = ByteBudget(100)
    assert budget.take("a", 50)
    assert not budget.take("a", 1)  # half of it for one address
    assert budget.take("b", 50)
    assert not budget.take("c", 1)
    budget.give_back("a", 50)
    assert budget.take("c", 50)
    budget.give_back("b", 50)
    budget.give_back("c", 50)
    assert not budget._by_address


def test_a_body_that_never_ends_is_408_and_is_forgotten(tmp_path: Path) -> None:
    gate = make_gate(tmp_path, connections=ConnectionLimits(body_s=0.2))

    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(3600)

    reply = ask(gate, "POST", "/v1/audio/speech", content=slowly())
    assert (reply.status_code, reply.json()["error"]["code"]) == (408, "timeout")
    assert gate._bodies._json._n_bytes == 0


def test_a_page_of_an_allowed_host_may_ask(tmp_path: Path) -> None:
    gate = make_gate(tmp_path, allowed_hosts=("tts.example.org",))
    own = {"host": "tts.example.org", "origin": "https://tts.example.org"}
    assert ask(gate, headers=own).status_code == 200
    foreign = ask(gate, headers={**own, "origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert "'https://evil.example'" in foreign.json()["error"]["message"]
    assert "--origin" in foreign.json()["error"]["message"]


@pytest.mark.parametrize("text", ["https://a.b", "a.b:8004", "a.b/c", "*.*", "a b", ""])
def test_a_host_flag_that_is_no_name_is_refused(text: str) -> None:
    import typer

    from nightingale.cli.serve import _check_hosts

    with pytest.raises(typer.BadParameter, match="without scheme, port and path"):
        _check_hosts([text])
    assert _check_hosts(["A.b", "*.a.b", "*", "::1"]) == ["a.b", "*.a.b", "*", "::1"]


@pytest.mark.parametrize("text", ["foo", "a.b", "https://a.b/path", "https://", ""])
def test_an_origin_flag_that_is_no_origin_is_refused(text: str) -> None:
    import typer

    from nightingale.cli.serve import _check_origins

    with pytest.raises(typer.BadParameter, match=r"https://a\.b"):
        _check_origins([text])
    given = ["https://A.b/", "http://a.b:8080", "chrome-extension://abc", "null", "*"]
    assert _check_origins(given)[0] == "https://a.b"


FORM = "application/x-www-form-urlencoded"  # what `curl -d` says


@pytest.mark.parametrize("content_type", [None, FORM, "application/json", f"{FORM}; charset=utf-8"])
def test_a_json_object_is_understood_whatever_it_is_called(
    content_type: str | None, gate: AccessMiddleware
) -> None:
    """An unknown voice is named: so far it was read."""
    headers = {"content-type": content_type} if content_type else {}
    body = b'{"input": "Hello.", "voice": "nobody"}'
    reply = ask(gate, "POST", "/v1/audio/speech", headers=headers, content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "voice_not_found")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(FORM, b"input=Hello."), (None, b"Hello."), ("text/plain", b'{"input": "Hello."}'),
     ("application/json", b"{"), ("application/json", b'"Hello."')],
)  # fmt: skip
def test_what_is_no_json_object_is_told_what_to_send(
    content_type: str | None, body: bytes, gate: AccessMiddleware
) -> None:
    headers = {"content-type": content_type} if content_type else {}
    reply = ask(gate, "POST", "/v1/audio/speech", headers=headers, content=body)
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_json")
    assert "content-type: application/json" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"},
     {"sec-fetch-site": "same-site"}],
)  # fmt: skip
@pytest.mark.parametrize("content_type", [None, FORM, "text/plain", "application/json"])
def test_a_form_of_another_site_is_refused(
    headers: dict[str, str], content_type: str | None, gate: AccessMiddleware
) -> None:
    """Browsers send these without asking first."""
    given = {**headers, **({"content-type": content_type} if content_type else {})}
    body = b'{"input": "Hello.", "voice": "nobody"}'
    for path in ("/v1/audio/speech", "/tts"):
        reply = ask(gate, "POST", path, headers=given, content=body)
        assert (reply.status_code, reply.json()["error"]["code"]) == (403, "origin")


def test_refusals_are_logged_with_their_reason_and_without_keys_and_texts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nightingale.access")
    gate = make_gate(tmp_path, key="sesame", max_characters=20)
    path, headers = "/v1/audio/speech", {"x-api-key": "sesame"}
    ask(gate, headers={"authorization": "Bearer secret"})
    ask(gate, headers={"host": "evil.example"})
    ask(gate, "POST", path, headers=headers, json={"input": "whisper " * 9})
    ask(gate, "POST", path, headers=headers, json={"whisper": 1})
    ask(gate, "POST", path, headers=headers, content=b"whisper " * 40_000)
    ask(gate, "GET", "/nowhere?text=whisper", headers=headers)
    noted = [record.__dict__ for record in caplog.records]
    assert [(line["levelname"], line["status"], line["code"], line["path"]) for line in noted] == [
        ("WARNING", 401, "invalid_api_key", "/v1/models"),
        ("WARNING", 403, "host", "/v1/models"),
        ("INFO", 400, "TextError", path),
        ("INFO", 400, "invalid_request", path),
        ("INFO", 413, "too_large", path),
        ("INFO", 404, "not_found", "/nowhere"),
    ]
    assert all(line["request"] for line in noted)
    assert not any(word in str(noted) for word in ("secret", "sesame", "whisper"))


def test_busy_servers_and_spent_keys_are_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "nightingale.access")
    file = tmp_path / "keys.toml"
    file.write_text(f'[anna]\nsha256 = "{hashlib.sha256(b"open").hexdigest()}"\nmax_characters = 3')
    gate = make_gate(tmp_path, keys=file)
    ask(gate, "POST", "/tts", headers={"x-api-key": "open"}, json={"text": "Hello."})
    gate = make_gate(tmp_path)
    gate._context.dispatcher.drain()
    ask(gate, "POST", "/tts", json={"text": "Hello."})
    ask(gate, "GET", "/health")
    noted = [(line.__dict__["status"], line.__dict__["code"]) for line in caplog.records]
    assert noted == [(429, "rate_limit_exceeded"), (503, "overloaded"), (503, "draining")]


def test_a_flood_of_wrong_keys_is_a_few_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.root, "handlers", [])
    level = logging.root.level
    gate = make_gate(tmp_path, key="sesame")
    begun = time.monotonic()
    log.start("warning")
    for n in range(60):
        ask(gate, headers={"x-api-key": f"guess {n}"})
    most = 10 * (1 + time.monotonic() - begun) + 1
    logging.root.setLevel(level)
    lines = capsys.readouterr().err.splitlines()
    assert 10 <= len(lines) <= most < 60
    assert "guess" not in str(lines)
