"""A WebSocket for those who write while they speak: text in pieces in, sound and words out.

Control is JSON, sound is binary: `{"type": "audio", "id": ..}` says whose the next binary message
is. Several utterances may be under way on one connection, each with its id.

    in   start  {voice, response_format, sample_rate, seed, ..}     optional: text alone starts one
         text   {text}      flush      end      cancel {played_ms}      ping
    out  started   buffering   audio + bytes   words   moved
         done   cancelled {last_word}   error   pong

Each utterance ends in exactly one of done, cancelled and an error that says `is_over`; other errors
are about a single message.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from contextlib import closing, suppress
from typing import Any

import numpy as np
from fastapi import APIRouter
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from nightingale.audio.encode import Encoder
from nightingale.core import SAMPLES_PER_SECOND, Word
from nightingale.errors import BusyError, NightingaleError
from nightingale.server.accounting import Account
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext, check_format, coded
from nightingale.server.keys import Key, owner_of
from nightingale.server.models_and_voices import check_model
from nightingale.server.schemas import StartMessage
from nightingale.server.utterance import Move, Utterance
from nightingale.server.worker_request import WorkerRequest
from nightingale.text.split import CUT

log = logging.getLogger("nightingale.websocket")

_TYPES = ("start", "text", "flush", "end", "cancel", "ping")  # of messages that come in
_GOING_AWAY = 1001  # close code: the server shuts down
_MAX_TALKS = 8  # under way on one connection
_MAX_PLAYED_MS = 1e9  # eleven days
_SILENT_S = 60.0  # an utterance whose text does not go on for so long is given up


def routes(context: ServerContext) -> APIRouter:
    router = APIRouter()

    @router.websocket("/v1/audio/speech/stream")
    @router.websocket("/ws/tts")
    async def talk(socket: WebSocket) -> None:
        if context.dispatcher.is_draining:
            message = "the server is shutting down; try another one"
            api_error = APIError(503, "overloaded", message, retry_after_s=5.0)
            await socket.send_denial_response(api_error.response)
            return
        await socket.accept()
        await WebSocketSession(context, socket).run()

    return router


class WebSocketSession:
    """One connection."""

    def __init__(self, context: ServerContext, socket: WebSocket) -> None:
        self.context, self._socket = context, socket
        self.key: Key = socket.state.key
        self.request_id: str = socket.state.request_id
        self.owner = owner_of(self.key, socket.client.host if socket.client else "")
        self._talks: dict[str, WebSocketUtterance] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Lock()
        self._is_closing = False
        self._n_running = 0  # utterances whose last message is not sent yet

    async def run(self) -> None:
        """Until the other side leaves; what it asked for ends with it."""
        self.context.sessions.add(self)
        try:
            while True:
                message = await self._socket.receive()
                if message["type"] == "websocket.disconnect":
                    return
                await self._take(message.get("text"))
        except (WebSocketDisconnect, RuntimeError, OSError):
            pass  # it left while something was being sent
        finally:
            self.context.sessions.discard(self)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def announce_shutdown(self, drain_s: float) -> None:
        """The client hears how long it has; without an utterance, the connection is closed."""
        self._is_closing = True
        await self.send({"type": "closing", "seconds": drain_s})
        await self._close_if_idle()

    async def shut_down(self) -> None:
        with suppress(RuntimeError, OSError):
            await self._socket.close(_GOING_AWAY, "the server is shutting down")

    async def _close_if_idle(self) -> None:
        if self._is_closing and not self._n_running:
            await self.shut_down()

    async def send(self, message: dict[str, Any], data: bytes | None = None) -> None:
        """A message, and the bytes that belong to it right behind."""
        async with self._sending, asyncio.timeout(self.context.config.stall_s):
            await self._socket.send_text(json.dumps(message))
            if data is not None:
                await self._socket.send_bytes(data)

    def leave(self, talk: WebSocketUtterance) -> None:
        self._talks.pop(talk.name, None)

    async def _take(self, text: str | None) -> None:
        name = None
        try:
            message = _parse(text)
            name = message.get("id", "")
            if not isinstance(name, str) or len(name) > 64:
                name = None
                raise _invalid("id", "must be a string of at most 64 characters")
            await self._act(message, name)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            field = ".".join(str(part) for part in first["loc"])
            await self._complain(name, _invalid(field, first["msg"]))
        except (WebSocketDisconnect, OSError):
            raise
        except RecursionError:  # which is a RuntimeError, too, as a closed connection is
            await self._complain(name, APIError(400, "invalid_json", "nested too deeply"))
        except RuntimeError:
            raise
        except Exception as error:
            await self._complain(name, error)

    async def _complain(self, name: Any, error: Exception) -> None:
        """About a message; the utterance that it was for may go on all the same."""
        is_over = name not in self._talks
        await self.send(
            {"type": "error", "id": name, "is_over": is_over, **APIError.of(error).body}
        )

    async def _act(self, message: dict[str, Any], name: str) -> None:
        kind = message["type"]
        if kind == "ping":
            await self.send({"type": "pong"})
        elif kind == "start":
            self._start(name, StartMessage.model_validate(message))
        elif kind == "text":
            text = message.get("text")
            if not isinstance(text, str):
                raise _invalid("text", "must be a string")
            if name not in self._talks:
                self._start(name, StartMessage())
            self._talks[name].put(text)
        elif kind in ("flush", "end", "cancel"):
            played_s = _played_s(message) if kind == "cancel" else None
            talk = self._talks.get(name)
            if talk is None:
                raise APIError(
                    404, "not_found", f"no utterance {name!r} is in progress", param="id"
                )
            if kind == "cancel":
                talk.cancel(played_s)
            else:
                talk.put(CUT) if kind == "flush" else talk.end()
        else:
            raise _invalid("type", f"{kind[:50]!r} is not one of {', '.join(_TYPES)}")

    def _start(self, name: str, message: StartMessage) -> None:
        if name in self._talks:
            raise _invalid("id", f"an utterance {name!r} is in progress; take another id")
        if len(self._talks) >= _MAX_TALKS:
            raise APIError(
                429,
                "rate_limit_exceeded",
                f"{_MAX_TALKS} utterances are in progress on this connection, which is the most",
            )
        talk = WebSocketUtterance(self, name, message)
        self._talks[name] = talk
        task = asyncio.create_task(self._run(talk))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, talk: WebSocketUtterance) -> None:
        self._n_running += 1
        try:
            await talk.run()
        finally:
            self._n_running -= 1
        await self._close_if_idle()


class WebSocketUtterance:
    """One utterance of a connection."""

    def __init__(self, line: WebSocketSession, name: str, message: StartMessage) -> None:
        context = line.context
        check_model(context, message.model)
        voice = context.voices.find(message.voice, line.key)
        self.name, self._line = name, line
        self._format, self._rate_hz = check_format(message.response_format, message.sample_rate)
        job = WorkerRequest(
            context.options(message, message.voice), [], True, True, voice.digest, voice.data
        )
        self._utterance = context.dispatcher.utter(job)
        self._tags = context.voice_tags(message, line.key)
        self._account = Account("websocket", line.request_id, line.key, self._format)
        self._max_wait_s = context.config.max_prebuffer_s if message.prebuffer else 0.0
        self._on_hold = self._send_held if message.progress else None
        self._n_characters = self._n_spent = 0
        self._refused: NightingaleError | None = None
        self._played_s: float | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._watch()

    def put(self, text: str) -> None:
        """More of the text."""
        self._n_characters += len(text)
        try:
            self._line.context.check_length(self._n_characters)
            voices = self._tags.feed(text)
        except NightingaleError as error:
            self._refused = error  # its end says so
            self.cancel()
            return
        self._n_spent += self._line.key.spend(len(text))
        if text:
            self._watch()
        self._utterance.put(text, voices)

    def end(self) -> None:
        self._unwatch()
        self._utterance.end()

    def cancel(self, played_s: float | None = None) -> None:
        """Silent from now on; `played_s` is how much of it the listener has heard."""
        self._unwatch()
        self._played_s = played_s
        self._utterance.cancel()

    async def run(self) -> None:
        """From its turn to its end."""
        line = self._line
        try:
            with self._account.open(line.context, self._utterance), line.key.turn():
                async with line.context.dispatcher.speak(self._utterance, line.owner) as utterance:
                    await self._speak(utterance)
        except (RuntimeError, OSError):
            pass  # nobody is there any more
        except (NightingaleError, APIError) as error:
            if isinstance(error, BusyError):
                line.key.refund(self._n_spent)
            api_error = APIError.of(error)
            log.info("refused", extra={"status": api_error.status, "code": api_error.code})
            with suppress(RuntimeError, OSError):
                details = {"is_over": True, **api_error.body}
                await line.send({"type": "error", "id": self.name, **details})
        finally:
            self._unwatch()
            line.leave(self)

    async def _speak(self, utterance: Utterance) -> None:
        send, digest, n_bytes = self._line.send, hashlib.sha256(), 0
        with closing(Encoder(self._format, self._rate_hz)) as encoder:
            seed = utterance.job.options.get("seed", 0)
            details = {"format": self._format, "sample_rate": encoder.rate_hz, "seed": seed}
            await send({"type": "started", "id": self.name, **details})
            head = encoder.start()
            async for event in utterance.paced(self._max_wait_s, self._on_hold):
                if isinstance(event, np.ndarray):
                    head += await coded(encoder, event)
                    n_bytes += await self._send_sound(head, digest)
                    head = b""
                elif isinstance(event, Move):
                    await send({"type": "moved", "id": self.name, **event.fields})
                else:
                    words = [_word_fields(word) for word in event]
                    await send({"type": "words", "id": self.name, "words": words})
            outcome = utterance.outcome
            assert outcome is not None
            self._line.leave(self)  # its id is free again when its end was sent
            if self._refused is not None:
                raise self._refused
            if outcome.ending == "cancelled":
                await send({"type": "cancelled", "id": self.name, **self._reached(utterance)})
                return
            n_bytes += await self._send_sound(encoder.finish() if n_bytes else b"", digest)
        await send(
            {
                "type": "done",
                "id": self.name,
                "finish_reason": outcome.ending,
                "samples": outcome.n_samples,
                "bytes": n_bytes,
                "sha256": digest.hexdigest(),
                "unsaid": list(outcome.unsaid),
                **utterance.detected,
                **utterance.report,
                "unspoken": utterance.unspoken,
            }
        )

    async def _send_held(self, seconds: float) -> None:
        held = {"id": self.name, "seconds": round(seconds, 3)}
        await self._line.send({"type": "buffering", **held})

    async def _send_sound(self, data: bytes, digest: Any) -> int:
        if not data or self._utterance.is_cancelled:
            return 0
        digest.update(data)
        await self._line.send({"type": "audio", "id": self.name}, data)
        return len(data)

    def _reached(self, utterance: Utterance) -> dict[str, Any]:
        """What the listener heard last, as far as it is known here."""
        sent_s = utterance.n_given / SAMPLES_PER_SECOND
        heard_s = sent_s if self._played_s is None else min(sent_s, self._played_s)
        last = utterance.word_at(heard_s)
        heard = utterance.words[: utterance.words.index(last) + 1] if last is not None else []
        return {
            "last_word": None if last is None else _word_fields(last),
            "spoken": " ".join(word.text for word in heard),
            "seconds": round(heard_s, 3),
        }

    def _watch(self) -> None:
        """Text is expected to go on."""
        self._unwatch()
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(_SILENT_S, self.cancel)

    def _unwatch(self) -> None:
        if self._idle is not None:
            self._idle.cancel()


def _word_fields(word: Word) -> dict[str, Any]:
    return {"word": word.text, "start": word.start_s, "end": word.end_s}


def _parse(text: str | None) -> dict[str, Any]:
    """A message: an object with a type."""
    try:
        message = json.loads(text or "")
    except RecursionError:
        raise APIError(400, "invalid_json", "the message is nested too deeply") from None
    except ValueError:
        expected = 'the message is not JSON; send text such as {"type": "text", "text": "Hello."}'
        raise APIError(400, "invalid_json", expected) from None
    if not isinstance(message, dict):
        raise APIError(400, "invalid_json", "the message is JSON, but not an object")
    if not isinstance(message.get("type"), str):
        raise _invalid("type", f"must be one of {', '.join(_TYPES)}")
    return message


def _invalid(field: str, reason: str) -> APIError:
    return APIError(400, "invalid_request", f"{field}: {reason}", param=field)


def _played_s(message: dict[str, Any]) -> float | None:
    """How much the listener has heard, if that was said."""
    played_ms = message.get("played_ms")
    if played_ms is None:
        return None
    is_number = isinstance(played_ms, int | float) and not isinstance(played_ms, bool)
    if not is_number or not 0 <= played_ms <= _MAX_PLAYED_MS:  # nor NaN
        raise _invalid("played_ms", "must be a number of milliseconds, 0 or more")
    return float(played_ms) / 1e3
