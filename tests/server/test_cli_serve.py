"""What `nightingale serve` says before it serves, and how it starts and stops: real processes."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from nightingale.audio.encode import encode
from nightingale.cli import app
from nightingale.cli.serve import _seconds
from nightingale.errors import OptionError
from tests.server.conftest import Solo, Subject
from tests.server.running import Server, free_port, quick_decoder

TEXT = "The quick brown fox jumps over the lazy dog."
HEAD = b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n"
WITHOUT = (
    "import sys; sys.modules[{0!r}] = None; from nightingale.cli import app; "
    "app(['serve', '--port', '0', '--wyoming-port', '0'])"
)


@pytest.fixture
def taken() -> Iterator[str]:
    """A port that somebody else listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


@pytest.mark.slow
@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "prometheus_client", "wyoming"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    package: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package)],
        env={"NIGHTINGALE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    facts = " ".join(done.stderr.split())
    assert package in facts
    assert "pip install 'nightingale-tts[server]'" in facts


def test_how_long_an_idle_model_stays() -> None:
    assert [_seconds(text) for text in ("300", "5m", "2h", "0.5s", "-1")] == [
        300,
        300,
        7200,
        0.5,
        None,
    ]
    with pytest.raises(OptionError, match="5m, 2h"):
        _seconds("a while")


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--port", "80000", "65535"),
        ("--wyoming-port", "-1", "0"),
        ("--log-level", "verbose", "debug, info, warning, error"),
        ("--log-format", "xml", "json, text"),
        ("--threads", "0", "1"),
        ("--origin", "foo", "https://a.b"),
        ("--plan", "nonsense", "reference, balanced"),
        ("--decoder", "nonsense", "standard, meanflow"),
        ("--device", "non sense", "auto, cpu, cuda"),
        ("--keep-alive", "soon", "5m, 2h"),
        ("--keys", "/nowhere/keys.toml", "No such file"),
        ("--allowed-host", "https://a.b", "without scheme"),
        ("--config", "/nowhere/serve.toml", "No such file"),
        ("--max-connections", "0", "1"),
        ("--max-connections-per-address", "0", "1"),
    ],
)
def test_a_wrong_option_is_one_line(option: str, value: str, allowed: str, taken: str) -> None:
    """Were it not noticed, the port would be."""
    arguments = ["serve", "--port", taken, option, value]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code in (1, 2)
    assert done.output.count("\n") == 1, done.output
    assert option.lstrip("-") in done.output
    assert allowed in done.output


@pytest.mark.parametrize(
    ("arguments", "key", "words"),
    [
        (["--host", "0.0.0.0"], "", "--no-auth"),
        (["--host", "192.0.2.1"], "", "NIGHTINGALE_API_KEY"),
        (["--wyoming-host", "0.0.0.0"], "", "--no-auth"),
        (["--no-auth"], "sesame", "one of them"),
    ],
)
def test_an_address_of_a_network_needs_a_key_or_no_auth(
    arguments: list[str], key: str, words: str, taken: str
) -> None:
    environ = {"NIGHTINGALE_API_KEY": key} if key else {}
    done = CliRunner().invoke(app, ["serve", "--port", taken, *arguments], env=environ)
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert words in done.output


@pytest.mark.parametrize(
    ("arguments", "key"),
    [(["--host", "0.0.0.0", "--no-auth"], ""), (["--host", "0.0.0.0"], "sesame"), ([], ""),
     (["--host", "127.0.0.9"], ""), (["--wyoming-host", "0.0.0.0", "--wyoming-port", "0"], "")],
)  # fmt: skip
def test_what_is_asked_for_or_has_a_key_goes_on_to_the_port(
    arguments: list[str], key: str, taken: str
) -> None:
    """Which is taken on all addresses."""
    environ = {"NIGHTINGALE_API_KEY": key} if key else {}
    host = "127.0.0.9" if "127.0.0.9" in arguments else "127.0.0.1"
    with socket.socket() as listener:
        listener.bind((host, 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        done = CliRunner().invoke(app, ["serve", "--port", port, *arguments], env=environ)
    assert done.exit_code == 1
    assert f"port {port}" in done.output
    assert "is in use" in done.output


@pytest.mark.slow
def test_a_port_in_use_is_one_line_before_anything_is_loaded(taken: str, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "nightingale", "serve", "--port", taken]
    environ = {**os.environ, "NIGHTINGALE_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    imported = {line.rsplit("|", 1)[-1].strip() for line in lines if line.startswith("import time")}
    (said,) = [line for line in lines if not line.startswith("import time")]
    assert done.returncode == 1
    assert f"port {taken} on 127.0.0.1 is in use" in said
    assert imported.isdisjoint({"torch", "fastapi", "uvicorn", "numpy"})


def test_a_wyoming_port_in_use_is_an_error_if_it_was_asked_for(taken: str) -> None:
    done = CliRunner().invoke(app, ["serve", "--port", "0", "--wyoming-port", taken])
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert f"port {taken} on 127.0.0.1 is in use" in done.output
    assert "--wyoming-port" in done.output


class Terminal:
    """What a person would see."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self.text = ""
        self._reader = threading.Thread(target=self._read)

    def start(self) -> None:
        os.close(self.theirs)
        self._reader.start()

    def close(self) -> None:
        self._reader.join()
        os.close(self._ours)

    def wait_for(self, words: str) -> None:
        until = time.monotonic() + 120
        while words not in self.text:
            assert time.monotonic() < until, self.text
            time.sleep(0.02)

    def _read(self) -> None:
        while True:
            try:
                self.text += os.read(self._ours, 4096).decode()
            except OSError:  # the other end is closed
                return


@pytest.mark.slow
def test_from_the_first_connection_to_sigterm_for_the_whole_group(
    subject: Subject, solo: Solo, tmp_path: Path
) -> None:
    """As systemd and `timeout` end it; configured by a file and the environment, in Kubernetes."""
    port, wyoming_port = free_port(), free_port()
    config = tmp_path / "serve.toml"
    config.write_text(f"port = 1\nwyoming_port = {wyoming_port}\nthreads = 1\n")
    environ = {
        "NIGHTINGALE_HOME": str(tmp_path),
        "NIGHTINGALE_PORT": "tcp://10.96.0.7:8004",
        "NIGHTINGALE_SERVICE_HOST": "10.96.0.7",
        "NIGHTINGALE_SERVE_PORT": str(port),
        "NIGHTINGALE_SERVE_CONFIG": str(config),
        "OMP_NUM_THREADS": "1",
        "TERM": "dumb",
    }
    terminal = Terminal()
    command = [sys.executable, "-m", "nightingale", "serve", "--model", str(subject.folder)]
    if decoder := quick_decoder(subject.folder):
        command += ["--decoder", decoder]
    process = subprocess.Popen(
        command, env={**os.environ, **environ}, stderr=terminal.theirs, start_new_session=True
    )
    terminal.start()
    url = f"http://127.0.0.1:{port}"
    try:
        terminal.wait_for("Loading the model")
        with httpx.Client(timeout=120) as client, ThreadPoolExecutor(1) as pool:
            early = pool.submit(client.get, f"{url}/v1/models")  # waits in the queue
            terminal.wait_for(f"Ready: {url}")
            assert early.result().status_code == 200
            options = {"seed": 1, "max_tokens": 40}
            body = {"input": TEXT, "response_format": "pcm", **options}
            spoken = pool.submit(client.post, f"{url}/v1/audio/speech", json=body)
            while "nightingale_speaking 1.0" not in httpx.get(f"{url}/metrics").text:
                time.sleep(0.01)
            worker = Server(url, process, tmp_path, tmp_path, {}, wyoming_port).worker()
            with socket.create_connection(("127.0.0.1", port)) as slow:
                slow.sendall(HEAD)  # and no body
                os.killpg(process.pid, signal.SIGTERM)
                content = spoken.result().content
                while Path(f"/proc/{worker}/cwd").exists():
                    time.sleep(0.01)
                time.sleep(0.2)  # the front, which still waits for `slow`, has seen it end
            closed = time.monotonic()
            assert process.wait(30) == 0
            assert time.monotonic() - closed < 5
            assert content == b"".join(encode([solo(TEXT, **options)], "pcm"))
    finally:
        process.kill()
        process.wait()
        terminal.close()
    assert terminal.text.count("worker started") == 1, terminal.text
    assert "worker died" not in terminal.text
    assert re.search(rf"\d\d:\d\d:\d\d info Wyoming listens host=127.0.0.1 port={wyoming_port}",
                     terminal.text)  # fmt: skip


@pytest.mark.slow
def test_a_signal_while_the_model_loads_ends_it_at_once(subject: Subject, tmp_path: Path) -> None:
    log, port = tmp_path / "log", free_port()
    command = [sys.executable, "-m", "nightingale", "serve", "--model", str(subject.folder)]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--wyoming-port", "0"],
            env={**os.environ, "NIGHTINGALE_HOME": str(tmp_path)},
            stderr=stderr,
        )
    while b"Wyoming is off" not in log.read_bytes():  # the last line before loading
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    assert process.wait(10) == 0
    assert "ready" not in log.read_text()
    assert "--wyoming-port is 0" in log.read_text()
