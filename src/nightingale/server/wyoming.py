"""Wyoming, the protocol of Home Assistant's voices: text in, or text in pieces; sound out.

It knows no keys, so it is not spoken where keys are asked for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import closing, suppress
from typing import cast

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
from nightingale.server.faults import Fault
from nightingale.server.front import Front
from nightingale.server.schemas import Sampling
from nightingale.server.utterance import Ask, Utterance

log = logging.getLogger("nightingale.wyoming")

_MAX_EVENT = 2**20  # bytes
_FORM = {"rate": SAMPLES_PER_SECOND, "width": 2, "channels": 1}
_WHO = Attribution(name="Nightingale", url="")


async def listen(front: Front, listener: socket.socket) -> asyncio.Server:
    """On a socket that is bound already."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await Caller(front, reader, writer).run()
        finally:
            writer.close()

    host, port = listener.getsockname()[:2]
    server = await asyncio.start_server(accept, sock=listener, limit=_MAX_EVENT)
    log.info("Wyoming listens", extra={"host": host, "port": port})
    return server


class _Bounded:
    """A reader that does not wait for more than anybody would send; `wyoming` believes any size."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self.readline = reader, reader.readline

    async def readexactly(self, n_bytes: int) -> bytes:
        if n_bytes > _MAX_EVENT:
            raise ValueError("too large")
        return await self._reader.readexactly(n_bytes)


class Caller:
    """One connection; its utterances come one after the other."""

    def __init__(
        self, front: Front, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._front, self._reader, self._writer = front, reader, writer
        self._writing: Utterance | None = None  # whose text is coming
        self._n_characters = 0
        self._speaking: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until it hangs up; nothing is computed for who is gone."""
        try:
            while (event := await self._read()) is not None:
                try:
                    await self._take(event)
                except (NightingaleError, Fault) as error:
                    await self._fail(error)
        except OSError:
            pass
        finally:
            if self._speaking is not None:
                self._speaking.cancel()
                with suppress(asyncio.CancelledError):
                    await self._speaking

    async def _read(self) -> Event | None:
        try:
            return await async_read_event(cast(asyncio.StreamReader, _Bounded(self._reader)))
        except (ValueError, KeyError, TypeError, asyncio.IncompleteReadError):
            return None  # whatever that was, it was not Wyoming

    async def _take(self, event: Event) -> None:
        if Describe.is_type(event.type):
            await self._write(self._info().event())
        elif Ping.is_type(event.type):
            await self._write(Pong().event())
        elif Synthesize.is_type(event.type):
            # Home Assistant sends the whole text once more inside a stream, for servers without.
            if self._writing is None:
                said = Synthesize.from_event(event)
                self._speak(self._front.dispatcher.utter(self._ask(said.voice, said.text)))
        elif SynthesizeStart.is_type(event.type):
            ask = self._ask(SynthesizeStart.from_event(event).voice, None)
            self._writing, self._n_characters = self._front.dispatcher.utter(ask), 0
            self._speak(self._writing, is_stream=True)
        elif SynthesizeChunk.is_type(event.type) and self._writing is not None:
            text = SynthesizeChunk.from_event(event).text
            self._n_characters += len(text)
            self._front.check_length(self._n_characters)
            self._writing.put(text)
        elif SynthesizeStop.is_type(event.type) and self._writing is not None:
            self._writing.end()
            self._writing = None

    def _ask(self, voice: SynthesizeVoice | None, text: str | None) -> Ask:
        name, language = (voice.name, voice.language) if voice else (None, None)
        sampling = Sampling(language=language)
        if text is not None:
            return self._front.ask(text, name, sampling)
        found = self._front.voices.find(name)
        return Ask(self._front.options(sampling), [], True, True, found.digest, found.data)

    def _speak(self, utterance: Utterance, *, is_stream: bool = False) -> None:
        before = self._speaking

        async def run() -> None:
            if before is not None:
                await before
            try:
                await self._sound(utterance)
                if is_stream:
                    await self._write(SynthesizeStopped().event())
            except NightingaleError as error:
                await self._fail(error)
            except OSError:
                pass

        self._speaking = asyncio.create_task(run())

    async def _sound(self, utterance: Utterance) -> None:
        async with self._front.dispatcher.speak(utterance):
            with closing(Encoder("pcm")) as encoder:
                await self._write(AudioStart(**_FORM).event())
                async for event in utterance.paced(self._front.config.max_prebuffer_s):
                    if isinstance(event, np.ndarray):
                        chunk = AudioChunk(audio=encoder.feed(event), **_FORM)
                        await self._write(chunk.event())
                await self._write(AudioStop().event())
        assert utterance.outcome is not None
        self._front.meters.note(utterance, utterance.outcome.ending)
        n_unspoken = len(utterance.unspoken)
        log.info("spoken", extra={"ending": utterance.outcome.ending, "unspoken": n_unspoken})

    async def _fail(self, error: Exception) -> None:
        fault = Fault.of(error)
        log.info("refused", extra={"status": fault.status, "code": fault.code})
        await self._write(Error(text=str(fault), code=fault.code).event())

    async def _write(self, event: Event) -> None:
        async with asyncio.timeout(self._front.config.stall_s):
            await async_write_event(event, self._writer)

    def _info(self) -> Info:
        hello = self._front.dispatcher.hello
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
            for name in self._front.voices.names()
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
