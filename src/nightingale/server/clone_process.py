"""The process that clones voices: `python -m nightingale.server.clone_process`.

It decodes recordings of strangers and runs the voice encoders on them, one at a time, with one
thread, at low priority, and within limits of CPU time and memory; the process that speaks does
none of this. Standard input is a socket to the front (`worker_protocol`): when it closes, this
process exits at once, whatever it is doing. A voice has the same bytes as one that
`nightingale voice add` makes from the same recording: same model, plan `reference`.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import queue
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale.core import CPU
from nightingale.errors import NightingaleError
from nightingale.server import worker_protocol
from nightingale.server.worker_protocol import Message

if TYPE_CHECKING:
    from nightingale.pipeline import Nightingale
    from nightingale.voice.clone import Encoders

NICE = 10  # about a tenth of a core while everything else is busy, and a whole one otherwise
_SAMPLES = 4  # a clone speaks one test sentence; its CPU limit grows by so many of them


@dataclass(frozen=True, slots=True)
class Studio:
    """A loaded model, its voice encoders, and the CPU seconds that one recording may take."""

    model: Nightingale
    encoders: Encoders
    cpu_s: float

    def clone(self, message: Message, recording: bytes) -> tuple[Message, bytes]:
        """The answer to one request: a voice file, or why there is none."""
        from nightingale.voice.library import to_bytes  # noqa: PLC0415
        from nightingale.voice.metadata import VoiceMetadata  # noqa: PLC0415

        limit_cpu(self.cpu_s)
        try:
            options = dict(message["options"])
            speed = options.pop("speed", 1.0)
            cloned = self.model.clone(recording, encoders=self.encoders, **options)
            voice = replace(cloned, speed=speed)
        except Exception as error:
            return failure(error), b""
        source = hashlib.sha256(recording).hexdigest()
        report = voice.report
        gain_db = report.level.gain_db if report.level else 0.0
        family = self.model.components.model.family
        metadata = VoiceMetadata(family, message["language"], source, message["consent"], gain_db)
        found = {"summary": report.summary, "warnings": list(report.warnings)}
        return {"kind": "cloned", **found}, to_bytes(voice, metadata)


def failure(error: Exception) -> Message:
    """Errors of ours are passed on; of others only the type, for their text may hold anything."""
    is_memory = isinstance(error, MemoryError) or "allocate memory" in str(error)  # torch's own
    is_ours = isinstance(error, NightingaleError)
    return {
        "kind": "error",
        "error": "MemoryError" if is_memory else type(error).__name__,
        "message": str(error) if is_ours else "",
    }


def limit_cpu(seconds: float) -> None:
    """So many from now on; the kernel then ends this process with SIGXCPU."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415

        used = resource.getrusage(resource.RUSAGE_SELF)
        most = max(1, math.ceil(used.ru_utime + used.ru_stime + seconds))
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))


def limit_memory(n_bytes: int) -> None:
    """So many more than are mapped now."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        n_pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = n_pages * os.sysconf("SC_PAGE_SIZE") + n_bytes
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def load(given: argparse.Namespace) -> Studio:
    """The same files as the worker's; the CPU limit follows the speed of this model here."""
    from nightingale.pipeline import Nightingale  # noqa: PLC0415

    model = Nightingale.load(
        given.model,
        home=given.home,
        device=given.device,
        watermark=False,
        backend=given.backend,
        threads=1,  # concurrent streams keep the other cores
    )
    encoders = model.cloner.load_encoders()
    begun = time.process_time()
    model.cloner.own_loudness()
    sample_s = time.process_time() - begun
    if model.components.loaded.device == CPU:  # drivers of others map far more than they use
        limit_memory(given.max_memory)
    return Studio(model, encoders, given.max_cpu + _SAMPLES * sample_s)


def serve(front: socket.socket, given: argparse.Namespace) -> None:
    """One recording after the other, until the front closes the connection."""
    requests: queue.SimpleQueue[tuple[Message, bytes]] = queue.SimpleQueue()
    threading.Thread(target=_receive, args=(front, requests), daemon=True).start()
    try:
        studio = load(given)
    except NightingaleError as error:
        front.sendall(worker_protocol.pack(failure(error)))
        return
    model = studio.model.components.model
    hello = {"kind": "hello", "model": model.name, "cpu_s": studio.cpu_s, "pid": os.getpid()}
    front.sendall(worker_protocol.pack(hello))
    while True:
        front.sendall(worker_protocol.pack(*studio.clone(*requests.get())))


def _receive(front: socket.socket, requests: Any) -> None:
    """In a thread of its own, so that a front that has gone ends this process in mid-work."""
    with suppress(NightingaleError, OSError), front.makefile("rb") as stream:
        while (frame := worker_protocol.read(stream)) is not None:
            requests.put(frame)
    os._exit(0)


def main() -> None:
    """What libraries print is dropped: decoders write lines about a stranger's recording, which are
    neither an answer nor a line for the server's log. Failures are answers."""
    parser = argparse.ArgumentParser(prog="nightingale.server.clone_process", description=__doc__)
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--max-cpu", type=float, required=True, help="seconds for a recording")
    parser.add_argument("--max-memory", type=int, required=True, help="bytes for a recording")
    given = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # to the whole group: for the front to handle
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError, AttributeError):  # AttributeError: Windows
        os.nice(NICE)
    front = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):
        os.dup2(nowhere, output)
    serve(front, given)


if __name__ == "__main__":
    main()
