"""`GET /v1/requests/{id}/audio?from=BYTES`: a response that broke off is continued."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import httpx
import pytest

from nightingale.server import recent
from nightingale.server.api_errors import APIError
from nightingale.server.context import SpeechRequest
from nightingale.server.keys import Key
from nightingale.server.recent import RecentRequests
from nightingale.server.voices import Voices
from nightingale.server.worker_request import WorkerRequest
from tests.server.running import Server

TEXT = "The quick brown fox jumps over the lazy dog. It does so again."


def cut(server: Server, n_bytes: int, request_id: str, **fields: object) -> bytes:
    """The first bytes of a response, whose connection then breaks."""
    url, got = f"{server.url}/v1/audio/speech", b""
    body, headers = server.body(TEXT, **fields), {"x-request-id": request_id}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as reply:
        assert reply.status_code == 200
        for piece in reply.iter_raw(chunk_size=256):
            got += piece
            if len(got) >= n_bytes:
                break
    return got[:n_bytes]


def resume(server: Server, request_id: str, offset: int) -> httpx.Response:
    url = f"{server.url}/v1/requests/{request_id}/audio"
    return httpx.get(url, params={"from": offset}, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["pcm", "wav", "mp3", "opus"])
def test_a_response_that_broke_off_is_continued_with_the_same_bytes(
    server: Server, form: str
) -> None:
    whole = server.speak(TEXT, response_format=form, seed=11)
    half = cut(server, 1501, f"cut-{form}", response_format=form, seed=11)
    assert 0 < len(half) < len(whole)
    rest = resume(server, f"cut-{form}", len(half))
    assert rest.status_code == 200
    assert half + rest.content == whole
    assert half + rest.content != whole + b"\0", "a wrong sum would be noticed"
    assert resume(server, f"cut-{form}", len(whole)).content == b""
    assert resume(server, f"cut-{form}", len(whole) + 1).status_code == 416


@pytest.mark.slow
def test_a_new_seed_and_a_whole_body_are_repeated_as_they_were(server: Server) -> None:
    url, headers = f"{server.url}/v1/audio/speech", {"x-request-id": "drawn"}
    body = server.body(TEXT, seed=-1, stream=False, response_format="wav")
    whole = httpx.post(url, json=body, headers=headers, timeout=60)
    rest = resume(server, "drawn", 1000)
    assert rest.content == whole.content[1000:]
    assert rest.headers["content-type"] == whole.headers["content-type"]
    assert int(rest.headers["content-length"]) == len(whole.content) - 1000
    assert whole.headers["x-seed"] == rest.headers["x-seed"]
    receipt = httpx.get(f"{server.url}/v1/requests/{rest.headers['x-request-id']}").json()
    assert receipt["sha256"] == hashlib.sha256(whole.content[1000:]).hexdigest()


@pytest.mark.slow
def test_what_is_not_known_cannot_be_continued(server: Server) -> None:
    reply = resume(server, "never-asked", 0)
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "not_found"
    assert resume(server, "never-asked", -1).status_code == 400


def order(request_id: str, key: str = "anna", text: str = "Hello.", **job: str) -> SpeechRequest:
    return SpeechRequest(
        WorkerRequest({"seed": 1}, [text], voice_file=b"data", **job),  # type: ignore[arg-type]
        "pcm",
        24_000,
        request_id=request_id,
        key=Key(key, ""),
    )


def test_what_was_asked_is_kept_for_its_key_bounded_and_not_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recent, "_MAX_REQUESTS", 3)
    monkeypatch.setattr(recent, "_MAX_CHARACTERS", 100)
    monkeypatch.setattr(recent, "_KEEP_S", 0.05)
    voices, known = Voices(tmp_path), RecentRequests()

    async def main() -> None:
        for number in range(5):
            known.keep(order(str(number)), "weights")
        assert len(known) == 3
        again = known.repeat("anna", "4", voices, "weights")
        assert (again.job.text, again.job.voice_file) == (["Hello."], b"")
        for key, request_id, fingerprint, status in (
            ("bert", "4", "weights", 404),
            ("anna", "0", "weights", 404),
            ("anna", "4", "other weights", 410),
        ):
            with pytest.raises(APIError) as refused:
                known.repeat(key, request_id, voices, fingerprint)
            assert refused.value.status == status
        known.keep(order("long", text="a" * 95), "weights")
        assert len(known) == 1
        known.keep(order("long", text="a" * 95), "weights")
        assert len(known) == 1
        await asyncio.sleep(0.2)
        assert len(known) == 0

    asyncio.run(main())


def test_a_voice_that_changed_is_not_spoken_with(tmp_path: Path) -> None:
    async def main() -> None:
        known = RecentRequests()
        known.keep(order("cloned", voice="the sum of another file"), None)
        with pytest.raises(APIError) as refused:
            known.repeat("anna", "cloned", Voices(tmp_path), None)
        assert refused.value.status == 410

    asyncio.run(main())


@pytest.mark.slow
def test_any_server_of_the_same_kind_continues_a_response(server: Server) -> None:
    """As if the first one were gone: nothing is known here but what the client shows."""
    url, body = f"{server.url}/v1/audio/speech", server.body("Hello there.", seed=5)
    whole = httpx.post(url, json=body, timeout=60)
    shown = {"x-resume-from": "1000", "x-fingerprint": whole.headers["x-fingerprint"]}
    rest = httpx.post(url, json=body, headers=shown, timeout=60)
    assert rest.content == whole.content[1000:]
    other = httpx.post(url, json=body, headers={**shown, "x-fingerprint": "0" * 16}, timeout=60)
    assert other.status_code == 410 and other.json()["error"]["code"] == "model_changed"
    broken = httpx.post(url, json=body, headers={**shown, "x-resume-from": "-1"}, timeout=60)
    assert broken.status_code == 400
