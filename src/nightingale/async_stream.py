"""A stream for asyncio: the model computes in a thread, text and chunks pass through the loop.

Closing the stream, or cancelling the task that reads it, cancels the speech within a step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import suppress

from nightingale.core import AudioChunk, Word
from nightingale.speech import SpeechStream
from nightingale.text.text_queue import TextQueue

Start = Callable[[str | Iterable[str]], SpeechStream]


class AsyncSpeechStream:
    """Chunks by `async for`; `async with` closes it. Text may come from a coroutine."""

    def __init__(self, text: str | Iterable[str] | AsyncIterable[str], start: Start) -> None:
        self._arrived = asyncio.Event()
        if isinstance(text, AsyncIterable):
            self._queue: TextQueue | None = TextQueue()
            self._speech, written = start(self._queue), text
            self._chunks = self._listen_and_write(written, self._queue)
        else:
            self._queue = None
            self._speech = start(text)
            self._chunks = self._listen()

    def __aiter__(self) -> AsyncSpeechStream:
        return self

    async def __anext__(self) -> AudioChunk:
        return await anext(self._chunks)

    async def __aenter__(self) -> AsyncSpeechStream:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what was not spoken yet."""
        self._speech.cancel()
        await self._chunks.aclose()

    @property
    def words(self) -> list[Word]:
        """As `SpeechStream.words`."""
        return self._speech.words

    def word_at(self, seconds: float) -> Word | None:
        """As `SpeechStream.word_at`."""
        return self._speech.word_at(seconds)

    async def _listen_and_write(
        self, text: AsyncIterable[str], queue: TextQueue
    ) -> AsyncGenerator[AudioChunk]:
        writing = asyncio.create_task(self._write(text, queue))
        try:
            async for chunk in self._listen():
                yield chunk
            await writing  # raises what the writer raised
        finally:
            writing.cancel()
            with suppress(asyncio.CancelledError):
                await writing

    async def _write(self, text: AsyncIterable[str], queue: TextQueue) -> None:
        try:
            async for piece in text:
                queue.put(piece)
                self._arrived.set()
        finally:
            queue.end()
            self._arrived.set()

    async def _listen(self) -> AsyncGenerator[AudioChunk]:
        try:
            while True:
                if self._queue is not None and not self._queue.is_ready():
                    self._arrived.clear()
                    await self._arrived.wait()
                is_over, chunk = await asyncio.to_thread(_step, self._speech)
                if is_over:
                    return
                if chunk is not None:
                    yield chunk
        finally:
            self._speech.cancel()


def _step(speech: SpeechStream) -> tuple[bool, AudioChunk | None]:
    """A step, and whether it was the end; StopIteration cannot leave a thread."""
    try:
        return False, speech.step()
    except StopIteration:
        return True, None
