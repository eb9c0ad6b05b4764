"""The recipes of docs/server.md, as far as their programs are here: nginx, Caddy, systemd."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from tests.server.conftest import Subject
from tests.server.running import Server, free_port, serving

DOCS_FOLDER = Path(__file__).parents[2] / "docs"
DOCS = (DOCS_FOLDER / "server.md").read_text(encoding="utf-8")
NAME = "tts.example.org"


def recipe(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", DOCS, re.MULTILINE | re.DOTALL)
    assert found, language
    return found[1]


def nginx(folder: Path, port: int, url: str) -> list[str]:
    """As it is written, but without TLS."""
    site = recipe("nginx").replace("http://127.0.0.1:8004", url)
    site = re.sub(r"^ *ssl_certificate.*$", "", site, flags=re.MULTILINE)
    assert "listen 443 ssl;" in site
    site = site.replace("listen 443 ssl;", f"listen 127.0.0.1:{port};")
    config = folder / "nginx.conf"
    paths = " ".join(f"{kind}_temp_path {folder}/{kind};"
                     for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))  # fmt: skip
    config.write_text(
        f"daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{ access_log off; {paths}\n{site}\n}}\n"
    )
    return ["nginx", "-c", str(config), "-e", str(folder / "error.log")]


def caddy(folder: Path, port: int, url: str) -> list[str]:
    """As it is written, but without TLS."""
    site = recipe("caddy").replace("127.0.0.1:8004", url.removeprefix("http://"))
    assert site.startswith(NAME)
    config = folder / "Caddyfile"
    plain = site.replace(NAME, f"http://{NAME}:{port}", 1)
    config.write_text("{\nadmin off\nauto_https off\n}\n" + plain)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(config)]


@contextmanager
def running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + 20
        while True:
            assert process.poll() is None, "it ended"
            assert time.monotonic() < until
            try:
                httpx.get(f"http://127.0.0.1:{port}/", headers={"host": NAME})
                break
            except httpx.TransportError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(20)


def _need(program: str) -> None:
    """Not installed for the tests' sake: packages of web servers start them."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")


@pytest.fixture(scope="module")
def behind(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("home")
    with serving(subject.folder, home, subject.options, "--allowed-host", NAME) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [nginx, caddy])
def test_a_proxy_passes_streams_sockets_and_pages(
    proxy: Callable[[Path, int, str], list[str]], behind: Server, tmp_path: Path
) -> None:
    command = proxy(tmp_path, port := free_port(), behind.url)
    _need(command[0])
    asked = behind.body("Hello there.", seed=1, max_tokens=30)
    with running(command, port):
        url, host = f"http://127.0.0.1:{port}", f"{NAME}:{port}"
        own = {"host": host, "origin": f"https://{host}"}
        with httpx.stream("POST", f"{url}/v1/audio/speech", json=asked, headers=own) as reply:
            assert reply.status_code == 200, reply.read()
            assert "content-length" not in reply.headers
            assert reply.read() == behind.speak("Hello there.", seed=1, max_tokens=30)
        assert httpx.get(f"{url}/", headers={"host": host}).status_code == 200
        foreign = {"host": host, "origin": "https://evil.example"}
        assert httpx.get(f"{url}/v1/models", headers=foreign).status_code == 403
        wire = socket.create_connection(("127.0.0.1", port))
        with connect(f"ws://{host}/ws/tts", sock=wire) as client:
            client.send('{"type": "ping"}')
            assert json.loads(client.recv()) == {"type": "pong"}


@pytest.mark.slow
def test_the_systemd_unit_is_understood(tmp_path: Path) -> None:
    _need("systemd-analyze")
    unit = tmp_path / "nightingale.service"
    shown = recipe("ini")
    assert "ExecStart=/opt/nightingale/bin/nightingale serve\n" in shown
    unit.write_text(shown.replace("/opt/nightingale/bin/nightingale", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert [line for line in done.stderr.splitlines() if "nightingale.service" in line] == []


@pytest.mark.slow
def test_the_example_of_the_agents_guide_speaks(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (DOCS_FOLDER / "guides/agents.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    assert "//localhost:8004" in code
    exec(code.replace("//localhost:8004", f"//{server.url.removeprefix('http://')}"), {})
    counts = re.findall(r"^(\d+) samples of 24 kHz$", capsys.readouterr().out, re.MULTILINE)
    assert sum(map(int, counts)) > 12_000
