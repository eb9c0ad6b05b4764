"""Streams for asyncio: the same sound, text from a coroutine, and a cancel when they are closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.async_stream import AsyncSpeechStream
from nightingale.core import PLANS
from nightingale.pipeline import Nightingale
from nightingale.voice.folder import BUILT_IN, Folder
from nightingale.voice.metadata import VoiceMetadata
from tests.tiny_release import Releases

TEXT = "It is late, and nobody is there. Hello? It is I."


@pytest.fixture(scope="module")
def tts(releases: Releases, tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    folder, home = releases("multilingual-hi"), tmp_path_factory.mktemp("home")
    return Nightingale.load(folder, home=home, device="cpu", plan=PLANS["live"], watermark=False)


async def heard(make: Callable[[], AsyncSpeechStream]) -> NDArray[np.float32]:
    """A stream is made inside of the event loop that reads it."""
    return np.concatenate([chunk.samples async for chunk in make()])


@pytest.mark.slow
def test_an_async_stream_has_the_samples_of_a_stream(tts: Nightingale) -> None:
    expected = np.concatenate([chunk.samples for chunk in tts.stream(TEXT, max_tokens=12)])
    found = asyncio.run(heard(lambda: tts.astream(TEXT, max_tokens=12)))
    assert np.array_equal(found, expected)


@pytest.mark.slow
def test_async_text_is_spoken_as_it_comes(tts: Nightingale) -> None:
    async def written() -> AsyncIterator[str]:
        for letter in TEXT:
            await asyncio.sleep(0.001)
            yield letter

    expected = np.concatenate([chunk.samples for chunk in tts.stream(iter(TEXT), max_tokens=12)])
    found = asyncio.run(heard(lambda: tts.astream(written(), max_tokens=12)))
    assert np.array_equal(found, expected)


@pytest.mark.slow
def test_an_error_of_the_writer_is_raised_by_the_stream(tts: Nightingale) -> None:
    async def written() -> AsyncIterator[str]:
        yield "It is late. "
        raise ConnectionError("the language model is gone")

    with pytest.raises(ConnectionError, match="is gone"):
        asyncio.run(heard(lambda: tts.astream(written(), max_tokens=12)))


def test_closing_an_async_stream_cancels_its_speech(tts: Nightingale) -> None:
    async def main() -> None:
        async with tts.astream(20 * TEXT, max_tokens=12) as stream:
            async for _chunk in stream:
                break
        assert stream._speech.is_cancelled
        assert [chunk async for chunk in stream] == []

    asyncio.run(main())


def test_cancelling_the_reading_task_cancels_its_speech(tts: Nightingale) -> None:
    async def silent() -> AsyncIterator[str]:
        await asyncio.sleep(60)
        yield ""

    async def main() -> None:
        stream = tts.astream(silent())
        reading = asyncio.create_task(heard(lambda: stream))
        await asyncio.sleep(0.1)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert stream._speech.is_cancelled

    asyncio.run(main())


@pytest.mark.slow
def test_a_voice_is_found_by_its_name(tts: Nightingale) -> None:
    family = tts.components.model.family
    own = tts.components.voice
    tts.voices.save("anna", own, VoiceMetadata(family))
    named, plain = (tts.say("Hello.", voice, max_tokens=8).samples for voice in ("anna", own))
    assert np.array_equal(named, plain)
    assert tts.voices.names() == ["anna", *Folder(BUILT_IN).names()]
    with pytest.raises(Exception, match="nobody"):
        tts.say("Hello.", "nobody")


@pytest.mark.slow
def test_a_model_knows_its_languages_and_sample_rate(tts: Nightingale, tmp_path: Path) -> None:
    assert tts.sample_rate == 24_000
    assert "hi" in tts.languages
    audio = tts.say("Hello.", max_tokens=8)
    audio.save(tmp_path / "hello.wav")
    assert (tmp_path / "hello.wav").stat().st_size > 2 * len(audio.samples)
