"""A server in a process of its own, as a person would start it."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx


@dataclass(frozen=True, slots=True)
class Server:
    """Where it is, and what it writes."""

    url: str
    process: subprocess.Popen[bytes]
    home: Path
    log: Path
    options: dict[str, Any]
    wyoming_port: int

    def body(self, text: str, **fields: Any) -> dict[str, Any]:
        """What is asked of `/v1/audio/speech`."""
        return {"input": text, "response_format": "pcm", **self.options, **fields}

    def speak(self, text: str, **fields: Any) -> bytes:
        reply = httpx.post(
            f"{self.url}/v1/audio/speech", json=self.body(text, **fields), timeout=60
        )
        assert reply.status_code == 200, reply.text
        return reply.content

    def meter(self, name: str) -> float:
        """One of the counters."""
        text = httpx.get(f"{self.url}/metrics").text
        found = re.search(rf"^nightingale_{re.escape(name)} (\S+)$", text, re.MULTILINE)
        assert found, name
        return float(found[1])

    def worker(self) -> int:
        """The process that owns the model now."""
        for line in subprocess.run(
            ["ps", "-o", "pid=,args=", "--ppid", str(self.process.pid)],
            capture_output=True, text=True, check=False,
        ).stdout.splitlines():  # fmt: skip
            if "nightingale.server.worker" in line:
                return int(line.split()[0])
        return 0


def quick_decoder(folder: Path) -> str | None:
    """The decoder of two steps, where a model brings it: tests of the server are not about it."""
    return "meanflow" if (folder / "s3gen_meanflow.safetensors").is_file() else None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def serving(
    folder: Path, home: Path, options: dict[str, Any], *flags: str, **environ: str
) -> Iterator[Server]:
    """From its first answer to its end."""
    with launched(folder, home, options, *flags, **environ) as server:
        try:
            wait_until_ready(server)
            yield server
        finally:
            server.process.terminate()
            assert server.process.wait(60) == 0, server.log.read_text()


@contextmanager
def launched(
    folder: Path, home: Path, options: dict[str, Any], *flags: str, **environ: str
) -> Iterator[Server]:
    """Started, and killed at the end if it is still there; its model may not be loaded yet."""
    port, wyoming_port = free_port(), free_port()
    log = home / f"log-{port}.jsonl"
    command = [sys.executable, "-m", "nightingale", "serve", "--model", str(folder)]
    if decoder := quick_decoder(folder):
        command += ["--decoder", decoder]
    clean = {name: value for name, value in os.environ.items() if "NIGHTINGALE" not in name}
    clean |= {"NIGHTINGALE_HOME": str(home), "OMP_NUM_THREADS": "1", **environ}
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--wyoming-port", str(wyoming_port), "--threads", "1",
             *flags],
            env=clean, stderr=stderr,
        )  # fmt: skip
    try:
        yield Server(f"http://127.0.0.1:{port}", process, home, log, options, wyoming_port)
    finally:
        process.kill()
        process.wait()


def wait_until_ready(server: Server) -> None:
    until = time.monotonic() + 90
    while time.monotonic() < until:
        assert server.process.poll() is None, server.log.read_text()
        try:
            httpx.get(f"{server.url}/health/live").raise_for_status()
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise TimeoutError(server.log.read_text())
