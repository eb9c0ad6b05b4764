"""Somebody who listens to one stream after the other, and notices when it stalls."""

from __future__ import annotations

import http.client
import json
import re
import threading
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

from tests.server.running import Server

_TEXT = "The quick brown fox jumps over the lazy dog. The river is old, and the night is blue."


@dataclass(slots=True)
class Heard:
    """Of all streams so far."""

    gap_s: float = 0.0  # the longest time between two chunks
    probe_s: float = 0.0  # and between a request for /health/live and its answer
    n_streams: int = 0
    n_busy: int = 0
    failures: list[str] = field(default_factory=list)  # streams and probes that broke off
    sums: set[str] = field(default_factory=set)

    @property
    def facts(self) -> dict[str, Any]:
        times = {"gap_s": round(self.gap_s, 3), "probe_s": round(self.probe_s, 3)}
        counts = {"streams": self.n_streams, "busy": self.n_busy}
        return {**times, **counts, "failures": self.failures[:5]}


class Listener:
    """In threads of its own: `with Listener(server) as listener`."""

    def __init__(self, server: Server, text: str = _TEXT) -> None:
        self._url, self._pid = httpx.URL(server.url), server.process.pid
        self._body = json.dumps(server.body(text, seed=7, prebuffer=False))
        self._stopping = threading.Event()

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """After the stream that is under way."""
        self._stopping.set()

    def front_mb(self) -> float:
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self._pid}/status").read_text())
        return int(found[1]) / 1024 if found else 0.0

    def measure(self, n_streams: int, *, until_stopped: bool = False) -> Heard:
        """So many streams, or more until `stop` was called."""
        heard, is_over = Heard(), threading.Event()
        prober = threading.Thread(target=self._probe, args=(heard, is_over))
        prober.start()
        try:
            while heard.n_streams < n_streams or (until_stopped and not self._stopping.is_set()):
                try:
                    self._listen(heard)
                except (OSError, http.client.HTTPException) as error:
                    heard.failures.append(f"stream: {error!r}")
                    break
        finally:
            is_over.set()
            prober.join()
        return heard

    def _listen(self, heard: Heard) -> None:
        connection = http.client.HTTPConnection(self._url.host, self._url.port, timeout=120)
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/audio/speech", self._body, headers)
        reply = connection.getresponse()
        if reply.status == 503:
            heard.n_busy += 1
            time.sleep(0.2)
        else:
            digest, last = sha256(), None
            while data := reply.read1(2**16):
                now = time.monotonic()
                heard.gap_s = max(heard.gap_s, now - (last or now))
                last = now
                digest.update(data)
            heard.sums.add(digest.hexdigest())
            heard.n_streams += 1
        connection.close()

    def _probe(self, heard: Heard, is_over: threading.Event) -> None:
        while not is_over.wait(0.05):
            connection = http.client.HTTPConnection(self._url.host, self._url.port, timeout=60)
            asked = time.monotonic()
            try:
                connection.request("GET", "/health/live")
                connection.getresponse().read()
            except (OSError, http.client.HTTPException) as error:
                heard.failures.append(f"probe: {error!r}")
                return
            heard.probe_s = max(heard.probe_s, time.monotonic() - asked)
            connection.close()
