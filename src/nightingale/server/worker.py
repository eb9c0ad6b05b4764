"""The process that owns the model: `python -m nightingale.server.worker`.

It listens for a front (several may come), speaks what it is asked to, and keeps nothing: a request
that is asked again, here or in another worker, gives the same samples, of which those that the
listener has already are skipped. Knows nothing of HTTP, formats, names of voices or users.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import hashlib
import json
import os
import signal
import sys
import threading
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale.core import AUTO, Plan, Voice
from nightingale.errors import NightingaleError, WorkerError
from nightingale.scheduler import Request, Scheduler
from nightingale.server import worker_protocol
from nightingale.server.fingerprint import Fingerprint
from nightingale.server.fingerprint import take as take_fingerprint
from nightingale.server.request_output import RequestOutput, failure
from nightingale.server.step_record import StepRecord
from nightingale.server.worker_protocol import Message
from nightingale.speech import Checkpoint
from nightingale.text.normalization import normalize_text
from nightingale.text.text_queue import TextQueue
from nightingale.token_log import TokenLog

if TYPE_CHECKING:
    from nightingale.pipeline import Nightingale

_MAX_VOICES = 64
_WARM_UP = "Hello."
_PR_SET_PDEATHSIG = 1
_N_IDLE = 5  # looks in a row, 20 ms apart, that find nothing to do, before it ends


class Worker:
    """One model, one scheduler, and the voices that were used last."""

    def __init__(
        self, model: Nightingale, max_requests: int, record: StepRecord, fingerprint: Fingerprint
    ) -> None:
        self.model, self.record, self._fingerprint = model, record, fingerprint
        self.scheduler = Scheduler(max_requests, model.step_tokens, model.decode_windows)
        self.stepping: int | None = None  # the request whose step is being computed
        self._numbers = count(1)  # of connections
        self._voices: OrderedDict[str, Voice] = OrderedDict()
        self.is_draining = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A front has come; its requests end with its connection."""
        connection = Connection(self, next(self._numbers), writer)
        try:
            connection.send({**self._hello(), "connection": connection.number})
            while (frame := await worker_protocol.receive(reader)) is not None:
                await connection.take(*frame)
        except WorkerError:
            pass  # it went away, or is none of ours: either way there is nobody to tell
        finally:
            connection.close()
            writer.close()

    def voice(self, digest: str | None) -> Voice | None:
        """One that is known here: the model's own, or by the hash of its file."""
        if digest is None:
            return self.model.components.voice
        if digest in self._voices:
            self._voices.move_to_end(digest)
        return self._voices.get(digest)

    def keep_voice(self, data: bytes) -> None:
        from nightingale.voice.library import check_family, from_bytes  # noqa: PLC0415

        voice, metadata = from_bytes(data, "this voice")
        check_family("this voice", metadata, self.model.components.model.family)
        self._voices[hashlib.sha256(data).hexdigest()] = voice
        while len(self._voices) > _MAX_VOICES:
            self._voices.popitem(last=False)

    def drop_voice(self, digest: str) -> Voice | None:
        """One that was deleted."""
        return self._voices.pop(digest, None)

    def _hello(self) -> Message:
        components = self.model.components
        return {
            "kind": "hello",
            "model": components.model.name,
            "family": components.model.family,
            "languages": list(components.model.languages),
            "plan": components.plan.name,
            "resolved_plan": str(components.plan),
            "explained_plan": str(components.resolved),
            "window_sizes": list(components.plan.window_sizes),
            "device": components.loaded.device,
            "max_requests": components.loaded.max_requests,
            "is_single": components.spec.is_single,
            "decoder": components.decoder,
            "is_watermarked": components.watermarker is not None,
            "pid": os.getpid(),
            "fingerprint": dict(self._fingerprint),
        }


class Connection:
    """One front: its requests by their ids, and the way back to it."""

    def __init__(self, worker: Worker, number: int, writer: asyncio.StreamWriter) -> None:
        self.worker, self.number, self._writer = worker, number, writer
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[Request, RequestOutput]] = {}
        self._deleted: list[tuple[Voice, set[int]]] = []  # voices, and requests that may use them

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Not waited for: what may be under way is bounded by what the front has room for."""
        if not self._writer.is_closing():
            self._writer.write(worker_protocol.pack(message, payload))

    def close(self) -> None:
        for request, _ in list(self._open.values()):
            self.worker.scheduler.cancel(request)
        self._open.clear()

    async def take(self, message: Message, payload: bytes) -> None:
        """Do what a message asks; what is wrong with it is reported to its sender."""
        act = getattr(self, f"_on_{message['kind']}", None)
        if act is None:
            return  # from a newer front
        try:
            act(message, payload)
        except NightingaleError as error:
            self.send(failure(message, error))
        except (KeyError, TypeError, ValueError) as error:
            self.send(failure(message, WorkerError(f"a broken message: {error!r}")))

    def _on_speak(self, message: Message, _payload: bytes) -> None:
        number, pieces = int(message["id"]), list(message["text"])
        voice, voices = self.worker.voice(message["voice"]), self._named(message)
        if voice is None:
            self.send({"kind": "need_voice", "id": number, "voice": message["voice"]})
        if voice is None or voices is None:
            return
        text_queue = TextQueue(pieces) if message["is_arriving"] else None
        if text_queue is not None and not message["is_open"]:
            text_queue.end()
        text = "".join(pieces) if text_queue is None else text_queue
        begun = message.get("resume") or {}
        behind = Checkpoint.from_json(begun["checkpoint"]) if begun else None
        if log := message.get("token_log"):
            behind = replace(behind or Checkpoint.start(), log=TokenLog.from_json(log))
        speech = self.worker.model.stream(
            text, voice, resume=behind, voices=voices, **message["options"]
        )
        output = RequestOutput(self, number, speech, text_queue, begun, voices)
        self._drop(number)
        request = self.worker.scheduler.admit(
            speech,
            output.on_audio,
            output.end,
            n_skip=int(message["n_skip"]),
            n_allowed=int(message["n_allowed"]),
            n_before=behind.joined.n_samples if behind else 0,
            is_ready=output.is_ready,
            around=output.around,
            is_alone=bool(message.get("is_suspect")),
        )
        self._open[number] = (request, output)

    def _named(self, message: Message) -> dict[str, Voice] | None:
        """Voices by the names that the mark-up has for them; None: one was asked for."""
        found = {}
        for name, digest in (message.get("voices") or {}).items():
            voice = self.worker.voice(digest)
            if voice is None:
                self.send({"kind": "need_voice", "id": message["id"], "voice": digest})
                return None
            found[name] = voice
        return found

    def _drop(self, number: int) -> None:
        """A request that is asked again takes the place of the first one."""
        if number in self._open:
            request, output = self._open.pop(number)
            output.is_dropped = True
            self.worker.scheduler.cancel(request)

    def _on_text(self, message: Message, _payload: bytes) -> None:
        if message["id"] not in self._open:
            return
        output = self._open[message["id"]][1]
        voices, text_queue = self._named(message), output.text_queue
        if voices is None:  # the front asks for all of it again, with the voice
            self._drop(message["id"])
            return
        output.voices.update(voices)
        if text_queue is not None:
            text_queue.put(str(message["text"]))
            if message["is_last"]:
                text_queue.end()
            self.worker.scheduler.wake()

    def _on_allow(self, message: Message, _payload: bytes) -> None:
        if message["id"] in self._open:
            request, _ = self._open[message["id"]]
            self.worker.scheduler.allow(request, int(message["n_samples"]))

    def _on_cancel(self, message: Message, _payload: bytes) -> None:
        if message["id"] in self._open:
            request, _ = self._open[message["id"]]
            self.worker.scheduler.cancel(request)

    def _on_voice(self, _message: Message, payload: bytes) -> None:
        self.worker.keep_voice(payload)

    def _on_ping(self, _message: Message, _payload: bytes) -> None:
        scheduler = self.worker.scheduler
        step = {"step_s": scheduler.step_s, "stepping": self.worker.stepping}
        status = {"n_requests": len(scheduler), "n_bytes": memory_bytes(), **step}
        self.send({"kind": "pong", **status})

    def _on_forget(self, message: Message, _payload: bytes) -> None:
        voice = self.worker.drop_voice(str(message["voice"]))
        if voice is not None:
            self._forget(voice)
            self._deleted += [(voice, set(self._open))] if self._open else []

    def _forget(self, voice: Voice) -> None:
        """Not in this loop: the model may be in the middle of a step."""
        self._loop.run_in_executor(None, self.worker.model.forget, voice)

    def _forget_unused(self, number: int) -> None:
        """A request is over: what it computed of voices that were deleted meanwhile goes, too."""
        for voice, numbers in self._deleted:
            numbers.discard(number)
            if not numbers:
                self._forget(voice)
        self._deleted = [kept for kept in self._deleted if kept[1]]

    def post(self, output: RequestOutput, message: Message, payload: bytes = b"") -> None:
        """From the scheduler's thread."""
        with suppress(RuntimeError):  # the loop was closed: this process is about to end
            self._loop.call_soon_threadsafe(self._post, output, message, payload)

    def _post(self, output: RequestOutput, message: Message, payload: bytes) -> None:
        if output.is_dropped:
            return
        if message["kind"] in ("end", "error"):
            self._open.pop(message["id"], None)
            self._forget_unused(message["id"])
        self.send(message, payload)


def memory_bytes() -> int:
    """What this process holds now, where the system tells."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return n_pages * os.sysconf("SC_PAGE_SIZE")


async def serve(
    model: Nightingale, fingerprint: Fingerprint, address: str, max_requests: int, status_fd: int
) -> None:
    """Until SIGTERM, and then until everything that was begun is said."""
    worker = Worker(model, max_requests, StepRecord(address), fingerprint)
    server = await worker_protocol.listen(address, worker.accept)
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows
        loop.add_signal_handler(signal.SIGTERM, worker.is_draining.set)
    _report(status_fd, {"listening": address})
    await worker.is_draining.wait()
    server.close()
    n_idle = 0
    while n_idle < _N_IDLE:  # who waited in the front may be handed over when another one ends
        n_idle = 0 if len(worker.scheduler) else n_idle + 1
        await asyncio.sleep(0.02)
    os._exit(0)  # nothing is left to be said, and threads that wait for nobody need no farewell


def _report(status_fd: int, status: dict[str, Any]) -> None:
    """To whoever started this process: one line, on a descriptor that nobody else writes to."""
    os.write(status_fd, json.dumps(status).encode() + b"\n")


def _end_with_parent() -> None:
    """Standard input ends when the front does, however it ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def _be_killed_with_parent() -> None:
    """By the kernel, where it can (Linux): that holds for a stopped process, too."""
    parent = os.getppid()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)  # it ended just before


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nightingale.server.worker", description=__doc__)
    parser.add_argument("--listen", required=True, help="path of a socket")
    parser.add_argument("--status-fd", type=int, default=1, help="for the status message")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--backend", default="torch")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--decoder")
    parser.add_argument("--plan", default=AUTO)
    parser.add_argument("--max-requests", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-watermark", action="store_true")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input does")
    return parser.parse_args()


def _load(given: argparse.Namespace) -> tuple[Nightingale, Fingerprint]:
    """The model, and what it said to warm up."""
    from nightingale.pipeline import Nightingale  # noqa: PLC0415

    model = Nightingale.load(
        given.model,
        home=given.home,
        device=given.device,
        decoder=given.decoder,
        plan=Plan.named(given.plan, stream=True),
        watermark=not given.no_watermark,
        backend=given.backend,
        threads=given.threads,
    )
    normalize_text("3", model.defaults.language)  # its patterns are built once
    canary = model.stream(_WARM_UP, max_tokens=12)
    return model, take_fingerprint(model, canary, given.home)


def main() -> None:
    """Load, warm up, listen."""
    given = _arguments()
    sys.setswitchinterval(5e-4)  # who computes must not keep messages waiting for ten times that
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key press is the front's to handle
    if given.with_parent:
        _be_killed_with_parent()
        threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        # In a thread that ends, and OpenMP's threads with it: those of two pools outnumber the
        # processors, and then they sleep at every barrier (nn/contention).
        with ThreadPoolExecutor(1, "load") as once:
            model, fingerprint = once.submit(_load, given).result()
    except NightingaleError as error:
        _report(given.status_fd, {"error": type(error).__name__, "message": str(error)})
        sys.exit(1)
    gc.collect()
    gc.freeze()  # the model stays: looking through it is 80 ms without sound
    asyncio.run(serve(model, fingerprint, given.listen, given.max_requests, given.status_fd))


if __name__ == "__main__":
    main()
