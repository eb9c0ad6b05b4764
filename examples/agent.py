"""A voice agent in asyncio: text comes word by word from a language model, sound leaves at once,
and when the user interrupts, it stops and knows which word was the last.

    python examples/agent.py
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator

from nightingale import Nightingale

REPLY = "It is half past seven, and the sun is up. You asked me to wake you, so here I am. "


async def language_model() -> AsyncIterator[str]:
    """Yours goes here."""
    for word in (3 * REPLY).split():
        await asyncio.sleep(0.02)
        yield word + " "


async def main(model: str | None = None, patience_s: float = 2.0) -> None:
    tts = Nightingale.load(model, plan="live")
    played_s = 0.0
    async with tts.astream(language_model()) as speech:
        async for chunk in speech:
            print(f"{played_s:5.2f} s: {len(chunk.samples)} samples to the loudspeaker")
            played_s += len(chunk.samples) / tts.sample_rate
            if played_s > patience_s:  # the user begins to talk
                break
    last = speech.word_at(played_s)
    print(f"interrupted after {played_s:.2f} s, at {last.text if last else 'no word yet'!r}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:2]))
