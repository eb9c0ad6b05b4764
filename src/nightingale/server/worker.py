"""The process that owns the model: `python -m nightingale.server.worker`.

It listens for a front (several may come), speaks what it is asked to, and keeps nothing: a request
that is asked again, here or in another worker, gives the same samples, of which those that the
listener has already are skipped. Knows nothing of HTTP, formats, names of voices or users.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import os
import signal
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale.core import Voice, Word
from nightingale.engine import Engine, Request
from nightingale.errors import NightingaleError, WorkerError
from nightingale.server import wire
from nightingale.server.wire import Message
from nightingale.text.inlet import Inlet

if TYPE_CHECKING:
    from nightingale.core import AudioChunk
    from nightingale.pipeline import Nightingale
    from nightingale.speech import Speech

_MAX_VOICES = 64
_WARM_UP = "Hello."
_N_IDLE = 5  # looks in a row, 20 ms apart, that find nothing to do, before it ends


class Worker:
    """One model, one engine, and the voices that were used last."""

    def __init__(self, model: Nightingale, max_requests: int) -> None:
        self.model = model
        self.engine = Engine(max_requests)
        self._voices: OrderedDict[str, Voice] = OrderedDict()
        self.is_draining = asyncio.Event()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A front has come; its requests end with its connection."""
        connection = Connection(self, writer)
        try:
            connection.send(self._hello())
            while (frame := await wire.receive(reader)) is not None:
                await connection.take(*frame)
        except WorkerError:
            pass  # it went away, or is none of ours: either way there is nobody to tell
        finally:
            connection.close()
            writer.close()

    def voice(self, digest: str | None) -> Voice | None:
        """One that is known here: the model's own, or by the hash of its file."""
        if digest is None:
            return self.model.parts.voice
        if digest in self._voices:
            self._voices.move_to_end(digest)
        return self._voices.get(digest)

    def keep_voice(self, data: bytes) -> None:
        from nightingale.voice.library import check_family, from_bytes  # noqa: PLC0415

        voice, card = from_bytes(data, "this voice")
        check_family("this voice", card, self.model.parts.model.family)
        self._voices[hashlib.sha256(data).hexdigest()] = voice
        while len(self._voices) > _MAX_VOICES:
            self._voices.popitem(last=False)

    def drop_voice(self, digest: str) -> Voice | None:
        """One that was deleted."""
        return self._voices.pop(digest, None)

    def _hello(self) -> Message:
        parts = self.model.parts
        return {
            "kind": "hello",
            "model": parts.model.name,
            "family": parts.model.family,
            "languages": list(parts.model.languages),
            "plan": parts.plan.name,
            "knows_sentences": self.model.knows_sentences,
            "decoder": parts.decoder,
            "is_marked": parts.watermarker is not None,
            "pid": os.getpid(),
        }


class Connection:
    """One front: its requests by their ids, and the way back to it."""

    def __init__(self, worker: Worker, writer: asyncio.StreamWriter) -> None:
        self._worker, self._writer = worker, writer
        self._loop = asyncio.get_running_loop()
        self._open: dict[int, tuple[Request, Inlet | None]] = {}

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Not waited for: what may be under way is bounded by what the front has room for."""
        if not self._writer.is_closing():
            self._writer.write(wire.pack(message, payload))

    def close(self) -> None:
        for request, _ in list(self._open.values()):
            self._worker.engine.cancel(request)
        self._open.clear()

    async def take(self, message: Message, payload: bytes) -> None:
        """Do what a message asks; what is wrong with it is its sender's to hear."""
        act = getattr(self, f"_on_{message['kind']}", None)
        if act is None:
            return  # from a newer front
        try:
            act(message, payload)
        except NightingaleError as error:
            self.send(_failure(message, error))
        except (KeyError, TypeError, ValueError) as error:
            self.send(_failure(message, WorkerError(f"a broken message: {error!r}")))

    def _on_speak(self, message: Message, _payload: bytes) -> None:
        number, pieces = int(message["id"]), list(message["text"])
        voice = self._worker.voice(message["voice"])
        if voice is None:
            self.send({"kind": "need_voice", "id": number, "voice": message["voice"]})
            return
        inlet = Inlet(pieces) if message["is_arriving"] else None
        if inlet is not None and not message["is_open"]:
            inlet.end()
        text = "".join(pieces) if inlet is None else inlet
        speech = self._worker.model.stream(text, voice, **message["options"])
        told = Telling(self, number, speech, inlet)
        request = self._worker.engine.admit(
            speech,
            told.hear,
            told.end,
            n_skip=int(message["n_skip"]),
            n_allowed=int(message["n_allowed"]),
            is_ready=told.is_ready,
        )
        self._open[number] = (request, inlet)

    def _on_text(self, message: Message, _payload: bytes) -> None:
        _, inlet = self._open.get(message["id"], (None, None))
        if inlet is not None:
            inlet.put(str(message["text"]))
            if message["is_last"]:
                inlet.end()
            self._worker.engine.wake()

    def _on_allow(self, message: Message, _payload: bytes) -> None:
        if message["id"] in self._open:
            request, _ = self._open[message["id"]]
            self._worker.engine.allow(request, int(message["n_samples"]))

    def _on_cancel(self, message: Message, _payload: bytes) -> None:
        if message["id"] in self._open:
            request, _ = self._open[message["id"]]
            self._worker.engine.cancel(request)

    def _on_voice(self, _message: Message, payload: bytes) -> None:
        self._worker.keep_voice(payload)

    def _on_ping(self, _message: Message, _payload: bytes) -> None:
        engine = self._worker.engine
        told = {"n_requests": len(engine), "step_s": engine.step_s, "n_bytes": memory_bytes()}
        self.send({"kind": "pong", **told})

    def _on_forget(self, message: Message, _payload: bytes) -> None:
        """Not in this loop: the model may be in the middle of a step."""
        voice = self._worker.drop_voice(str(message["voice"]))
        if voice is not None:
            self._loop.run_in_executor(None, self._worker.model.forget, voice)

    def tell(self, message: Message, payload: bytes = b"") -> None:
        """From the engine's thread."""
        with suppress(RuntimeError):  # the loop was closed: this process is about to end
            self._loop.call_soon_threadsafe(self._tell, message, payload)

    def _tell(self, message: Message, payload: bytes) -> None:
        if message["kind"] in ("end", "error"):
            self._open.pop(message["id"], None)
        self.send(message, payload)


class Telling:
    """What the engine computes for one request, told to its front as it comes."""

    def __init__(
        self, connection: Connection, number: int, speech: Speech, inlet: Inlet | None
    ) -> None:
        self._connection, self._number, self._speech = connection, number, speech
        self._inlet = inlet
        self._idle_since: float | None = None
        self._idle_s = 0.0  # since the last chunk, for want of text
        self._n_parts = self._n_words = 0  # parts that are over, and words told of the next one
        self._n_told = 0  # words in all
        self._n_unspoken = 0  # characters that were reported

    def is_ready(self) -> bool:
        """There is text to speak."""
        is_ready, now = self._inlet is None or self._inlet.is_ready(), time.monotonic()
        if is_ready and self._idle_since is not None:
            self._idle_s += now - self._idle_since
        if not is_ready and self._idle_since is None:
            self._report_last_word()
        self._idle_since = None if is_ready else self._idle_since or now
        return is_ready

    def hear(self, chunk: AudioChunk) -> None:
        samples = chunk.samples.astype("<f4", copy=False).tobytes()
        idle_s, self._idle_s = self._idle_s, 0.0
        message: Message = {"kind": "audio", "id": self._number, "idle_s": idle_s}
        if len(self._speech.unspoken) > self._n_unspoken:
            self._n_unspoken = len(self._speech.unspoken)
            message["unspoken"] = list(self._speech.unspoken)
        self._connection.tell(message, samples)
        self._tell_words(is_over=False)

    def end(self, error: Exception | None) -> None:
        speech = self._speech
        if error is not None:
            self._connection.tell(_failure({"id": self._number}, error))
            return
        self._tell_words(is_over=True)
        self._connection.tell(
            {
                "kind": "end",
                "id": self._number,
                "n_samples": speech.n_samples,
                "n_tokens": speech.n_tokens,
                "is_cancelled": speech.is_cancelled,
                "is_complete": speech.is_complete,
                "unsaid": speech.unsaid,
                "unspoken": speech.unspoken,
                "work_ms": speech.timings.total_ms,
            }
        )

    def _report_last_word(self) -> None:
        """Text is only asked for between two parts, so the end of the last word is known."""
        parts = self._speech.parts
        if parts and parts[-1].is_settled:
            self._tell_words(is_over=True)

    def _tell_words(self, *, is_over: bool) -> None:
        """Each word once, when its end is known; counted, so that a second telling can be told."""
        parts = self._speech.parts
        fresh: list[Word] = []
        for number in range(self._n_parts, len(parts)):
            words = list(parts[number].words())
            is_past = is_over or number + 1 < len(parts)
            if not is_past and not parts[number].is_settled:
                break  # when its words are said is not known yet
            known = words if is_past else words[:-1]
            fresh += known[self._n_words :]
            self._n_words = len(known)
            if is_past:
                self._n_parts, self._n_words = number + 1, 0
        if fresh:
            told = [[word.text, round(word.start_s, 3), round(word.end_s, 3)] for word in fresh]
            message = {"kind": "words", "id": self._number, "first": self._n_told, "words": told}
            self._n_told += len(told)
            self._connection.tell(message)


def _failure(message: Message, error: Exception) -> Message:
    """Ours are told as they are; of others only their name, for they may hold anything."""
    is_ours = isinstance(error, NightingaleError)
    return {
        "kind": "error",
        "id": message.get("id"),
        "error": type(error).__name__,
        "message": str(error) if is_ours else f"the worker failed ({type(error).__name__})",
    }


def memory_bytes() -> int:
    """What this process holds now, where the system tells."""
    try:
        n_pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return 0
    return n_pages * os.sysconf("SC_PAGE_SIZE")


async def serve(model: Nightingale, address: str, max_requests: int) -> None:
    """Until SIGTERM, and then until everything that was begun is said."""
    worker = Worker(model, max_requests)
    server = await wire.listen(address, worker.accept)
    loop = asyncio.get_running_loop()
    with suppress(NotImplementedError):  # Windows
        loop.add_signal_handler(signal.SIGTERM, worker.is_draining.set)
    _say({"listening": address})
    await worker.is_draining.wait()
    server.close()
    n_idle = 0
    while n_idle < _N_IDLE:  # who waited in the front may be handed over when another one ends
        n_idle = 0 if len(worker.engine) else n_idle + 1
        await asyncio.sleep(0.02)
    os._exit(0)  # nothing is left to be said, and threads that wait for nobody need no farewell


def _say(line: dict[str, Any]) -> None:
    """To whoever started this process."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _leave_with_parent() -> None:
    """Standard input ends when the front does, however it ended."""
    sys.stdin.buffer.read()
    os._exit(0)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="nightingale.server.worker", description=__doc__)
    parser.add_argument("--listen", required=True, help="host:port, or a path")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--decoder")
    parser.add_argument("--plan", default="live")
    parser.add_argument("--max-requests", type=int, default=8)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--no-watermark", action="store_true")
    parser.add_argument("--with-parent", action="store_true", help="end when standard input does")
    return parser.parse_args()


def main() -> None:
    """Load, warm up, listen."""
    given = _arguments()
    sys.setswitchinterval(5e-4)  # who computes must not keep messages waiting for ten times that
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key press is the front's to handle
    if given.with_parent:
        threading.Thread(target=_leave_with_parent, daemon=True).start()
    import torch  # noqa: PLC0415

    from nightingale.pipeline import Nightingale  # noqa: PLC0415

    if given.threads:
        torch.set_num_threads(given.threads)
    try:
        model = Nightingale.load(
            given.model,
            home=given.home,
            device=given.device,
            decoder=given.decoder,
            plan=given.plan,
            watermark=not given.no_watermark,
        )
        for _ in model.stream(_WARM_UP, max_tokens=12):
            pass
    except NightingaleError as error:
        _say({"error": type(error).__name__, "message": str(error)})
        sys.exit(1)
    gc.collect()
    gc.freeze()  # the model stays: looking through it is 80 ms without sound
    asyncio.run(serve(model, given.listen, given.max_requests))


if __name__ == "__main__":
    main()
