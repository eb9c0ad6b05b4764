"""A voice agent in asyncio: text comes word by word from a language model, sound leaves at once,
and when the user interrupts, it stops and knows which word was the last.

    python examples/agent.py
"""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator

from nightingale import Nightingale
from nightingale.core import SAMPLES_PER_SECOND, AudioChunk
from nightingale.speech import SpeechStream

REPLY = "It is half past seven, and the sun is up. You asked me to wake you, so here I am. "


async def language_model() -> AsyncIterator[str]:
    """Yours goes here."""
    for word in (3 * REPLY).split():
        await asyncio.sleep(0.02)
        yield word + " "


class Mouth:
    """Speaks in a thread of its own; takes words and gives sound in the event loop."""

    def __init__(self, tts: Nightingale) -> None:
        self._engine = tts
        self._words: asyncio.Queue[str | None] = asyncio.Queue()
        self._sound: asyncio.Queue[AudioChunk | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self.speech: SpeechStream = tts.stream(self._pieces())
        threading.Thread(target=self._speak, daemon=True).start()

    def say(self, piece: str | None) -> None:
        """More text; None: that was all."""
        self._words.put_nowait(piece)

    def _pieces(self) -> Iterator[str]:
        def wait() -> str | None:
            return asyncio.run_coroutine_threadsafe(self._words.get(), self._loop).result()

        yield from iter(wait, None)

    def _speak(self) -> None:
        for chunk in self.speech:
            self._loop.call_soon_threadsafe(self._sound.put_nowait, chunk)
        self._loop.call_soon_threadsafe(self._sound.put_nowait, None)

    async def sound(self) -> AsyncIterator[AudioChunk]:
        while (chunk := await self._sound.get()) is not None:
            yield chunk


async def main(model: str | None = None, patience_s: float = 2.0) -> None:
    mouth = Mouth(Nightingale.load(model, plan="live"))

    async def think() -> None:
        async for piece in language_model():
            mouth.say(piece)
        mouth.say(None)

    thinking = asyncio.create_task(think())
    played_s = 0.0
    async for chunk in mouth.sound():
        seconds = len(chunk.samples) / SAMPLES_PER_SECOND
        print(f"{played_s:5.2f} s: {len(chunk.samples)} samples to the loudspeaker")
        played_s += seconds
        if played_s > patience_s:  # the user begins to talk
            mouth.speech.cancel()
            thinking.cancel()
            mouth.say(None)
            break
    last = mouth.speech.word_at(played_s)
    print(f"interrupted after {played_s:.2f} s, at {last.text if last else 'no word yet'!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
