"""Wyoming, the protocol of Home Assistant's voices: text in, or text in pieces; sound out.

It knows no keys, so it is not spoken where keys are asked for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing

import numpy as np
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.error import Error
from wyoming.event import Event, async_read_event, async_write_event
from wyoming.info import Attribution, Describe, Info, TtsProgram, TtsVoice
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from nightingale import __version__
from nightingale.audio.encode import Encoder
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import NightingaleError
from nightingale.server.accounting import Account
from nightingale.server.api_errors import APIError
from nightingale.server.bucket import TokenBucket
from nightingale.server.context import ServerContext
from nightingale.server.keys import ANYBODY, owner_of
from nightingale.server.schemas import Sampling
from nightingale.server.utterance import Utterance
from nightingale.server.worker_request import WorkerRequest

log = logging.getLogger("nightingale.wyoming")

_MAX_TEXTS = 2  # of one connection that wait while another one is spoken
_TEXT_IDLE_S = 60.0  # for more of a text that comes in pieces
_IDLE_S = 600.0  # for anything, when nothing is spoken
_LOOK_S = 0.05  # whether all was spoken, when the server shuts down
_EVENTS_PER_S, _MAX_BURST = 200.0, 1000.0
_FORM = {"rate": SAMPLES_PER_SECOND, "width": 2, "channels": 1}
_WHO = Attribution(name="Nightingale", url="")
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}  # a dead peer: 60 s
_NOT_WYOMING = (ValueError, KeyError, TypeError, AttributeError, RecursionError, EOFError)


async def listen(context: ServerContext, listener: socket.socket) -> asyncio.Server:
    """On a socket that is bound already."""
    loop = asyncio.get_running_loop()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(reader, _Reader)
        try:
            _keep_alive(writer.get_extra_info("socket"))
            await WyomingSession(context, reader, writer).run()
        finally:
            writer.close()

    def protocol() -> asyncio.StreamReaderProtocol:
        reader = _Reader(context.config.max_json)
        return asyncio.StreamReaderProtocol(reader, accept, loop=loop)

    host, port = listener.getsockname()[:2]
    server = await loop.create_server(protocol, sock=listener)
    log.info("Wyoming listens", extra={"host": host, "port": port})
    return server


def _keep_alive(connection: socket.socket) -> None:
    """A peer that lost its power says nothing more; TCP finds out."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class _Reader(asyncio.StreamReader):
    """Believes no size above its limit, and says that the other side is gone while nobody reads."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(limit=max_bytes)
        self._max_bytes = max_bytes
        self.gone = asyncio.Event()

    async def readexactly(self, n: int) -> bytes:
        if n > self._max_bytes:
            raise ValueError("too large")
        return await super().readexactly(n)

    def feed_eof(self) -> None:
        super().feed_eof()
        self.gone.set()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self.gone.set()


class WyomingSession:
    """One connection. One task reads, one speaks; between them are at most two texts."""

    def __init__(
        self, context: ServerContext, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        self._context, self._reader, self._writer = context, reader, writer
        self._writing: Utterance | None = None  # whose text is coming
        self._n_characters = 0
        self._tags = context.voice_tags(Sampling())
        self._texts: asyncio.Queue[tuple[Utterance, bool]] = asyncio.Queue(_MAX_TEXTS)
        self._is_speaking = False
        self._bucket = TokenBucket(_MAX_BURST, _EVENTS_PER_S)

    async def run(self) -> None:
        """Until it hangs up; nothing is computed for who is gone."""
        api_error = self._context.connections.add(self._writer.transport, lambda: self._is_idle)
        if api_error is not None:
            await self._fail(api_error)
            return
        self._context.sessions.add(self)
        tasks = [asyncio.create_task(work) for work in (self._read_all(), self._speak_all())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._context.sessions.discard(self)
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, OSError):
                    log.error("unexpected", exc_info=result)

    async def _read_all(self) -> None:
        while (event := await self._read()) is not None:
            await asyncio.sleep(self._bucket.force(1))
            try:
                await self._take(event)
            except (NightingaleError, APIError) as error:
                await self._fail(error)
            except _NOT_WYOMING:
                message = f"the event {event.type!r:.50} lacks a field, or has one of another kind"
                await self._fail(APIError(400, "invalid_request", message))

    async def announce_shutdown(self, drain_s: float) -> None:  # noqa: ARG002
        """Wyoming has no message for it: the connection is closed when nothing is under way."""
        while self._is_speaking or not self._texts.empty():
            await asyncio.sleep(_LOOK_S)
        await self.shut_down()

    async def shut_down(self) -> None:
        self._writer.close()

    async def _read(self) -> Event | None:
        """The next event; None: there is none, or that was not Wyoming."""
        while True:
            limit_s = _IDLE_S if self._writing is None else _TEXT_IDLE_S
            try:
                async with asyncio.timeout(limit_s):
                    return await async_read_event(self._reader)
            except TimeoutError:
                if self._writing is None and not self._is_idle:
                    continue
                message = f"nothing came for {limit_s:g} s; connect again"
                await self._fail(APIError(408, "timeout", message))
                return None
            except _NOT_WYOMING:
                return None

    async def _take(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._write(self._info().event())
        elif Ping.is_type(event.type):
            await self._write(Pong().event())
        elif Synthesize.is_type(event.type):
            # Home Assistant sends the whole text once more inside a stream, for servers without.
            if self._writing is None:
                said = Synthesize.from_event(event)
                utterance = self._context.dispatcher.utter(self._ask(said.voice, said.text))
                await self._put(utterance, is_stream=False)
        elif SynthesizeStart.is_type(event.type):
            self._end()
            job = self._ask(SynthesizeStart.from_event(event).voice, None)
            self._writing, self._n_characters = self._context.dispatcher.utter(job), 0
            self._tags = self._context.voice_tags(Sampling())
            await self._put(self._writing, is_stream=True)
        elif SynthesizeChunk.is_type(event.type) and self._writing is not None:
            text = SynthesizeChunk.from_event(event).text
            self._n_characters += len(text)
            try:
                self._context.check_length(self._n_characters)
                voices = self._tags.feed(text)
            except NightingaleError:
                self._writing.cancel()
                self._writing = None
                raise
            self._writing.put(text, voices)
        elif SynthesizeStop.is_type(event.type):
            self._end()

    @property
    def _is_idle(self) -> bool:
        return self._writing is None and not self._is_speaking and self._texts.empty()

    def _end(self) -> None:
        """The text that comes in pieces is whole."""
        if self._writing is not None:
            self._writing.end()
            self._writing = None

    async def _put(self, utterance: Utterance, *, is_stream: bool) -> None:
        """Into the queue; nothing is read while that is full, but a hang-up is noticed."""
        putting = asyncio.create_task(self._texts.put((utterance, is_stream)))
        leaving = asyncio.create_task(self._reader.gone.wait())
        try:
            await asyncio.wait({putting, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not putting.done():
                raise ConnectionResetError
        finally:
            putting.cancel()
            leaving.cancel()

    def _ask(self, voice: SynthesizeVoice | None, text: str | None) -> WorkerRequest:
        name, language = (voice.name, voice.language) if voice else (None, None)
        sampling = Sampling(language=language)
        if text is not None:
            return self._context.worker_request(text, name, sampling)
        found = self._context.voices.find(name)
        return WorkerRequest(
            self._context.options(sampling, name), [], True, True, found.digest, found.data
        )

    async def _speak_all(self) -> None:
        while True:
            utterance, is_stream = await self._texts.get()
            self._is_speaking = True
            try:
                await self._sound(utterance)
                if is_stream:
                    await self._write(SynthesizeStopped().event())
            except NightingaleError as error:
                await self._fail(error)
            self._is_speaking = False

    async def _sound(self, utterance: Utterance) -> None:
        is_begun = False
        address = (self._writer.get_extra_info("peername") or ("",))[0]
        with Account("wyoming").open(self._context, utterance), closing(Encoder("pcm")) as encoder:
            async with self._context.dispatcher.speak(utterance, owner_of(ANYBODY, address)):
                async for event in utterance.paced(self._context.config.max_prebuffer_s):
                    if isinstance(event, np.ndarray):
                        if not is_begun:
                            await self._write(AudioStart(**_FORM).event())
                        is_begun = True
                        chunk = AudioChunk(audio=encoder.feed(event), **_FORM)
                        await self._write(chunk.event())
                if not is_begun:
                    await self._write(AudioStart(**_FORM).event())
                await self._write(AudioStop().event())

    async def _fail(self, error: Exception) -> None:
        api_error = APIError.of(error)
        log.info("refused", extra={"status": api_error.status, "code": api_error.code})
        await self._write(Error(text=str(api_error), code=api_error.code).event())

    async def _write(self, event: Event) -> None:
        async with asyncio.timeout(self._context.config.stall_s):
            await async_write_event(event, self._writer)

    def _info(self) -> Info:
        hello = self._context.dispatcher.hello
        languages = [str(language) for language in hello.get("languages", ["en"])]
        voices = [
            TtsVoice(
                name=name,
                attribution=_WHO,
                installed=True,
                description=name,
                version=None,
                languages=languages,
            )
            for name in self._context.voices.names()
        ]
        program = TtsProgram(
            name="nightingale",
            attribution=_WHO,
            installed=True,
            description=f"Nightingale, {hello.get('model')}",
            version=__version__,
            voices=voices,
            supports_synthesize_streaming=True,
        )
        return Info(tts=[program])
