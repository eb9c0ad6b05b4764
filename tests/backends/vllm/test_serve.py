"""`nightingale serve --backend vllm`, heard by OpenAI's client. `scripts/vllm` runs this."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: scripts/vllm runs these tests")

import openai

import nightingale
from nightingale import Nightingale
from tests.server.running import quick_decoder, serving

FLEDGLING = Path(nightingale.__file__).parent / "fledgling"
TEXTS = (
    "It is late, and nobody minds that the lights are on.",
    "Hello there.",
    "Seven small birds.",
)

pytestmark = pytest.mark.slow


def test_openai_client_streams_what_the_torch_backend_says(tmp_path: Path) -> None:
    """Several at once; to the sample, because tokens are the same and the decoder is."""
    flags = ("--backend", "vllm", "--plan", "reference", "--no-watermark", "--max-factor", "0")
    load = {"decoder": quick_decoder(FLEDGLING), "home": tmp_path, "watermark": False}
    alone = Nightingale.load(FLEDGLING, **load)  # type: ignore[arg-type]
    wanted = [alone.say(text, seed=7).samples for text in TEXTS]
    with serving(FLEDGLING, tmp_path, {}, *flags) as server:
        client = openai.OpenAI(api_key="none", base_url=f"{server.url}/v1", timeout=300)

        def heard(text: str) -> tuple[int, bytes]:
            with client.audio.speech.with_streaming_response.create(
                model="fledgling",
                voice="default",
                response_format="pcm",
                input=text,
                extra_body={"seed": 7},
            ) as reply:
                chunks = list(reply.iter_bytes(4096))
            return len(chunks), b"".join(chunks)

        with ThreadPoolExecutor(len(TEXTS)) as pool:
            got = list(pool.map(heard, TEXTS))
        client.close()
    for (n_chunks, pcm), samples in zip(got, wanted, strict=True):
        assert n_chunks > 1
        played = np.frombuffer(pcm, "<i2").astype(np.float32) / 2**15
        assert len(played) == len(samples)
        assert np.abs(played - samples).max() <= 2 / 2**15
