"""Who is let in, and what is written down of those who are not: the real application, no model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightingale.server.app import make_app
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.front import Config, Front
from nightingale.server.gate import Gate
from nightingale.server.keys import Keys
from nightingale.server.meters import Meters
from nightingale.server.supervisor import Recipe, Supervisor
from nightingale.server.voices import Voices


def make_gate(folder: Path, key: str | None = None, **config: Any) -> Gate:
    """A front whose worker was never started."""
    dispatcher = Dispatcher(Supervisor(Recipe(folder), folder), Limits())
    keys, voices = Keys.read(None, key), Voices(folder / "voices")
    return make_app(Front(Config(**config), dispatcher, voices, keys, Meters(dispatcher)))


def ask(gate: Gate, method: str = "GET", path: str = "/v1/models", **more: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=gate)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **more)

    return asyncio.run(send())


def status_of(gate: Gate, host: str) -> int:
    return ask(gate, headers={"host": host}).status_code


def test_a_local_server_answers_to_names_of_this_machine_alone(tmp_path: Path) -> None:
    gate = make_gate(tmp_path)
    for host in ("localhost", "localhost:8004", "127.0.0.1:9", "[::1]:8004", "LOCALHOST"):
        assert status_of(gate, host) == 200, host
    for host in ("host.docker.internal:8004", "tts.example.org", "10.0.0.7", "", "localhost.evil"):
        assert status_of(gate, host) == 403, host


def test_the_refusal_names_the_host_and_the_flag(tmp_path: Path) -> None:
    reply = ask(make_gate(tmp_path), headers={"host": "host.docker.internal:8004"})
    assert reply.status_code == 403
    assert "--allowed-host host.docker.internal" in reply.json()["error"]["message"]


def test_hosts_can_be_allowed_by_name_and_by_domain(tmp_path: Path) -> None:
    gate = make_gate(tmp_path, allowed_hosts=("tts.example.org", "*.lan"))
    for host in ("tts.example.org", "TTS.example.org:443", "a.lan", "a.b.lan", "localhost"):
        assert status_of(gate, host) == 200, host
    for host in ("example.org", "evil.tts.example.org", "lan", "evillan", "10.0.0.7"):
        assert status_of(gate, host) == 403, host
    assert status_of(make_gate(tmp_path, allowed_hosts=("*",)), "anything.at.all") == 200


def test_an_open_server_with_allowed_hosts_refuses_other_names(tmp_path: Path) -> None:
    """DNS rebinding needs a name; Kubernetes' probes ask by address."""
    anybody = make_gate(tmp_path, host="0.0.0.0")
    assert status_of(anybody, "evil.example") == 200
    gate = make_gate(tmp_path, host="0.0.0.0", allowed_hosts=("tts.example.org",))
    for host in ("tts.example.org", "10.0.0.7:8004", "[fd00::7]:8004", "localhost"):
        assert status_of(gate, host) == 200, host
    assert status_of(gate, "evil.example") == 403


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
