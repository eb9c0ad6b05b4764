"""LiveKit's and Pipecat's own OpenAI plugins, where they are installed (scripts/agents)."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from typing import Any

import pytest

from nightingale.audio.encode import encode
from tests.server.conftest import Solo, Subject
from tests.server.running import Server

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("livekit") is None or find_spec("pipecat") is None,
        reason="scripts/agents installs LiveKit and Pipecat",
    ),
]

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture(autouse=True)
def ends_by_itself(subject: Subject) -> None:
    if subject.options:
        pytest.skip("these clients have no way to bound a model that never ends")


@pytest.mark.parametrize("model", ["tts-1", "gpt-4o-mini-tts"])  # by bytes, and by events
def test_livekit_hears_everything(server: Server, solo: Solo, model: str) -> None:
    plugin = pytest.importorskip("livekit.plugins.openai")

    async def main() -> bytes:
        tts = plugin.TTS(
            base_url=f"{server.url}/v1", api_key="none", model=model, voice="ash",
            response_format="pcm",
        )  # fmt: skip
        heard = [bytes(event.frame.data) async for event in tts.synthesize(TEXT)]
        await tts.aclose()
        return b"".join(heard)

    said = b"".join(encode([solo(TEXT)], "pcm"))
    assert asyncio.run(main())[: len(said)] == said  # it adds a little silence


def test_pipecat_hears_everything(server: Server, solo: Solo) -> None:
    services: Any = pytest.importorskip("pipecat.services.openai.tts")

    async def main() -> bytes:
        service = services.OpenAITTSService(
            api_key="none", base_url=f"{server.url}/v1", sample_rate=24_000,
            settings=services.OpenAITTSService.Settings(voice="alloy", model="gpt-4o-mini-tts"),
        )  # fmt: skip
        service._sample_rate = 24_000  # what its pipeline does when it starts
        heard = [getattr(frame, "audio", b"") async for frame in service.run_tts(TEXT, "one")]
        return b"".join(heard)

    assert asyncio.run(main()) == b"".join(encode([solo(TEXT)], "pcm"))
