"""A real server, asked over HTTP by real clients."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import numpy as np
import pytest
import soundfile

from nightingale.audio.encode import FORMATS, encode, encode_whole
from nightingale.voice.folder import BUILT_IN, Folder
from tests.server.conftest import Solo, Subject
from tests.server.running import Server, serving

if TYPE_CHECKING:  # half a second, in every run of any test
    import openai

pytestmark = pytest.mark.slow

TEXT = "The quick brown fox jumps over the lazy dog."
SHORT = "Hello there."  # where how much is said does not matter
LONG = " ".join([TEXT] * 12)


def test_bytes_of_every_format_are_those_of_the_pipeline(server: Server, solo: Solo) -> None:
    samples = solo(SHORT, seed=7)
    for format_ in FORMATS:
        body = server.speak(SHORT, seed=7, response_format=format_)
        assert body == b"".join(encode([samples], format_)), format_
        whole = server.speak(SHORT, seed=7, response_format=format_, stream=False)
        assert whole == encode_whole([samples], format_), format_
    for name, format_, rate in (("ulaw_8000", "mulaw", 8000), ("pcm_16000", "pcm", 16000)):
        body = server.speak(SHORT, seed=7, response_format=name)
        assert body == b"".join(encode([samples], format_, rate))
    assert server.speak(SHORT, seed=7, sample_rate=48_000) == b"".join(
        encode([samples], "pcm", 48_000)
    )


def test_concurrent_requests_get_the_bytes_of_each_alone(server: Server, solo: Solo) -> None:
    texts = [f"{TEXT} Number {n}." if n % 2 else f"Number {n}." for n in range(8)]
    alone = [b"".join(encode([solo(text, seed=n)], "pcm")) for n, text in enumerate(texts)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda n: server.speak(texts[n], seed=n), range(8)))
    assert together == alone


def test_sound_comes_while_it_is_made(server: Server) -> None:
    begun = time.monotonic()
    body = server.body(LONG, prebuffer=False)
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=20) as reply:
        first = next(reply.iter_raw())
        assert len(first) < 24_000
        first_s = time.monotonic() - begun
        assert reply.headers["x-sample-rate"] == "24000"
        assert "first-audio" in reply.headers["server-timing"]
        assert "prebuffer" in reply.headers["server-timing"]
    assert first_s < 5


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    import openai

    with openai.OpenAI(api_key="none", base_url=f"{server.url}/v1") as client:
        yield client


def test_openai_streams_to_a_file(
    server: Server, client: openai.OpenAI, solo: Solo, tmp_path: Path
) -> None:
    import openai

    extra = {**server.options, "seed": 3}
    with client.audio.speech.with_streaming_response.create(
        model="tts-1", voice="alloy", input=TEXT, response_format="wav", extra_body=extra
    ) as reply:
        reply.stream_to_file(tmp_path / "speech.wav")
    heard, _ = soundfile.read(tmp_path / "speech.wav", dtype="int16")
    said, _ = soundfile.read(io.BytesIO(encode_whole([solo(TEXT, seed=3)], "wav")), dtype="int16")
    assert np.array_equal(heard, said)
    assert {"tts-1", "gpt-4o-mini-tts"} <= {model.id for model in client.models.list()}
    with pytest.raises(openai.NotFoundError, match="is not loaded"):
        client.audio.speech.create(model="other", voice="alloy", input=TEXT)
    with pytest.raises(openai.BadRequestError, match="there is no voice"):
        client.audio.speech.create(model="tts-1", voice="nobody", input=TEXT)


def test_openai_reads_events(server: Server, client: openai.OpenAI, solo: Solo) -> None:
    extra = {**server.options, "timestamps": True}
    with client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="ash", input=TEXT, response_format="pcm",
        stream_format="sse", extra_body=extra,
    ) as reply:  # fmt: skip
        events = [json.loads(line[6:]) for line in reply.iter_lines() if line.startswith("data: ")]
    audio = b"".join(base64.b64decode(e["audio"]) for e in events if "audio" in e)
    assert audio == b"".join(encode([solo(TEXT)], "pcm"))
    assert [e["type"] for e in events].count("speech.audio.done") == 1
    assert events[-1]["type"] == "speech.audio.done"
    assert events[-1]["usage"]["output_tokens"] > 0
    words = [word for e in events for word in e.get("words", [])]
    assert all(word["start"] <= word["end"] for word in words)


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"input": ""}, 400, "nothing to say"),
        ({"input": "?!"}, 400, "nothing to say"),
        ({"input": "a" * 20_001}, 400, "at most 20000"),
        ({"input": 7}, 400, "input"),
        ({"response_format": "tape"}, 400, "there is no response_format"),
        ({"response_format": "mp3", "sample_rate": 7}, 400, "mp3 cannot have 7 Hz"),
        ({"voice": "../../etc/passwd"}, 400, "there is no voice"),
        ({"voice": "nobody.wav"}, 400, "there is no voice"),
        ({"temperature": 99}, 400, "temperature is 99"),
        ({"seed": 2**70}, 400, "seed"),
        ({"language": "xx"}, 400, "xx"),
        ({"speed": 9}, 400, "speed is 9.0, but must lie between 0.5 and 2.0"),
        ({"speed": 0.49}, 400, "speed is 0.49"),
        ({"stream_format": "film"}, 400, "stream_format"),
    ],
)
def test_a_mistake_is_told_in_openais_shape(
    server: Server, fields: dict[str, object], status: int, message: str
) -> None:
    reply = httpx.post(f"{server.url}/v1/audio/speech", json=server.body(TEXT) | fields)
    error = reply.json()["error"]
    assert (reply.status_code, message in error["message"]) == (status, True), error
    assert reply.headers["x-should-retry"] == "false"
    assert {"message", "type", "param", "code"} == error.keys()
    assert reply.headers["x-request-id"]


def test_speed_is_honoured_and_nan_is_refused(server: Server) -> None:
    plain, fast = (server.speak(TEXT, speed=speed) for speed in (1.0, 1.6))
    assert plain == server.speak(TEXT)
    assert len(fast) == pytest.approx(len(plain) / 1.6, rel=0.05)
    assert fast == server.speak(TEXT, speed_factor=1.6, stream=False)
    url = f"{server.url}/v1/audio/speech"
    reply = httpx.post(url, json=server.body(TEXT, speed=1.6, language="auto"), timeout=60)
    assert reply.content == fast
    assert re.fullmatch(r"en; confidence=(0\.\d\d|1\.00)", reply.headers["x-language"])
    body = json.dumps(server.body(TEXT, speed=math.nan))
    headers = {"content-type": "application/json"}
    reply = httpx.post(url, content=body, headers=headers)
    assert reply.status_code == 400
    assert "speed" in reply.json()["error"]["message"]


def test_what_is_unknown_is_ignored_and_a_new_seed_is_told(server: Server) -> None:
    body = server.body(TEXT, seed=-1, instructions="whisper", shoe_size=43)
    reply = httpx.post(f"{server.url}/audio/speech", json=body)
    assert reply.status_code == 200
    assert "x-ignored" not in reply.headers
    assert server.speak(TEXT, seed=int(reply.headers["x-seed"])) == reply.content
    assert re.fullmatch(
        r"auto; t3=int8; flow=.*; windows=8-.*; device=cpu", reply.headers["x-plan"]
    )
    receipt = httpx.get(f"{server.url}/v1/requests/{reply.headers['x-request-id']}").json()
    assert receipt["bytes"] == len(reply.content)
    assert receipt["finish_reason"] in ("stop", "length")


def test_who_leaves_is_not_spoken_to(server: Server) -> None:
    before = server.meter('requests_total{ending="gone"}')
    body = json.dumps(server.body(LONG)).encode()
    with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
        client.sendall(
            b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\n"
            b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    until = time.monotonic() + 5
    while server.meter('requests_total{ending="gone"}') == before:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert server.meter("speaking") == 0


def test_a_reader_that_pauses_gets_every_byte(server: Server, solo: Solo) -> None:
    text = " ".join([TEXT] * 5)
    body = server.body(text, seed=1)
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as reply:
        pieces = reply.iter_raw(4096)
        got = next(pieces)
        time.sleep(1.5)
        got += b"".join(pieces)
    assert got == b"".join(encode([solo(text, seed=1)], "pcm"))


def test_a_worker_killed_under_streams_changes_no_byte(server: Server, solo: Solo) -> None:
    texts = [f"{TEXT} {TEXT} Number {n}." for n in range(3)]
    before = server.meter("worker_restarts_total")
    with ThreadPoolExecutor(3) as pool:
        heard = pool.map(lambda n: server.speak(texts[n], seed=n), range(3))
        time.sleep(0.6)
        os.kill(server.worker(), signal.SIGKILL)
        bodies = list(heard)
    assert bodies == [b"".join(encode([solo(text, seed=n)], "pcm")) for n, text in enumerate(texts)]
    assert server.meter("worker_restarts_total") == before + 1
    assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200


def test_nothing_that_was_said_is_in_the_log(server: Server) -> None:
    secret = "Zanzibar"
    server.speak(f"{secret} is a secret.")
    httpx.post(f"{server.url}/v1/audio/speech", json=server.body(secret, temperature=99))
    lines = map(json.loads, server.log.read_text().splitlines())
    spoken = [line for line in lines if line["event"] == "spoken"]
    assert {"request", "first_ms", "seconds", "ending"} <= spoken[-1].keys()
    assert secret.lower() not in server.log.read_text().lower()


def test_sillytavern_finds_what_its_preset_asks_for(server: Server) -> None:
    """The calls that its browser code makes, in its order, from its own origin."""
    with httpx.Client(
        base_url=server.url, headers={"origin": "http://localhost:8000"}, timeout=60
    ) as tavern:
        voices = tavern.get("/get_predefined_voices")
        assert voices.headers["access-control-allow-origin"] == "http://localhost:8000"
        voice, *others = voices.json()
        assert {"display_name", "voice_id"} <= voice.keys()
        assert [other["voice_id"] for other in others] == Folder(BUILT_IN).names()
        assert tavern.get("/get_reference_files").json() == []
        said = {
            "text": TEXT, "temperature": 0.8, "exaggeration": 0.5, "cfg_weight": 0.5, "seed": 5,
            "speed_factor": 1.0, "language": "en", "split_text": True, "chunk_size": 120,
            "output_format": "wav", "voice_mode": "predefined", **server.options,
        }  # fmt: skip
        ask = tavern.options("/tts", headers={"access-control-request-method": "POST"})
        assert "content-type" in ask.headers["access-control-allow-headers"]
        for name in (voice["voice_id"], "S1", "emma"):
            reply = tavern.post("/tts", json={**said, "predefined_voice_id": name})
            assert reply.status_code == 200, reply.text
            assert soundfile.info(io.BytesIO(reply.content)).samplerate == 24_000
        from_address = tavern.get(
            "/tts-stream", params={**said, "predefined_voice_id": "S1", "output_format": "opus"}
        )
        assert from_address.headers["content-type"] == "audio/ogg"
        assert from_address.content[:4] == b"OggS"


def test_curl_into_sox(server: Server, solo: Solo) -> None:
    body = json.dumps(server.body(TEXT, response_format="wav"))
    curl = ["curl", "-sN", f"{server.url}/v1/audio/speech", "-d", body]
    with subprocess.Popen(
        [*curl, "-H", "content-type: application/json"], stdout=subprocess.PIPE
    ) as asking:
        raw = ["sox", "-V1", "-t", "wav", "-", "-t", "raw", "-"]
        heard = subprocess.run(raw, stdin=asking.stdout, capture_output=True, check=True).stdout
    assert heard == b"".join(encode([solo(TEXT)], "pcm"))


def test_a_voice_lives_from_upload_to_removal(server: Server, recording: Path, solo: Solo) -> None:
    with recording.open("rb") as file:
        made = httpx.post(
            f"{server.url}/v1/audio/voices",
            data={"voice_name": "Anna", "consent": "it is me"},
            files={"voice_file": ("anna.wav", file)},
            timeout=240,  # cloning gives way to everything else that runs beside these tests
        )
    assert made.status_code == 201, made.text
    assert made.json()["summary"].startswith('Voice "anna" saved: 4.0 s of recording')
    assert "anna" in httpx.get(f"{server.url}/v1/audio/voices").json()["voices"]
    cloned = server.speak(TEXT, voice="anna.wav")
    assert cloned != server.speak(TEXT)
    for name, data in (("../x", b""), ("anna", recording.read_bytes()), ("b", b"no sound")):
        refused = httpx.post(
            f"{server.url}/voices", data={"voice_name": name}, files={"voice_file": data}
        )
        assert refused.status_code == 400, refused.text
    noise = io.BytesIO()
    soundfile.write(noise, np.random.default_rng(0).normal(0, 0.1, 72_000), 24_000, format="WAV")
    for force, status in (("false", 400), ("true", 201)):
        made = httpx.post(
            f"{server.url}/v1/audio/voices",
            data={"voice_name": "noise", "force": force},
            files={"voice_file": noise.getvalue()},
            timeout=240,
        )
        assert made.status_code == status, made.text
        assert "not sound like speech" in made.text
    httpx.delete(f"{server.url}/v1/audio/voices/noise")
    assert httpx.delete(f"{server.url}/v1/audio/voices/anna").json()["deleted"]
    assert httpx.delete(f"{server.url}/v1/audio/voices/anna").status_code == 400


def test_too_many_are_refused_quickly_and_told_when_to_come_back(
    subject: Subject, tmp_path: Path
) -> None:
    flags = ("--max-requests", "1", "--max-waiting", "1")
    with serving(subject.folder, tmp_path, subject.options, *flags) as server:
        with ThreadPoolExecutor(2) as pool:
            spoken = [pool.submit(server.speak, f"{TEXT} {TEXT}", seed=n) for n in range(2)]
            while server.meter("waiting") == 0:
                time.sleep(0.01)
            with httpx.Client() as client:
                client.get(f"{server.url}/health/live")
                for _ in range(5):
                    begun = time.monotonic()
                    reply = client.post(f"{server.url}/v1/audio/speech", json=server.body(TEXT))
                    assert time.monotonic() - begun < 0.5
                    assert reply.status_code == 503
                    assert int(reply.headers["retry-after"]) >= 1
                    assert int(reply.headers["retry-after-ms"]) > 0
                    assert reply.json()["error"]["code"] == "overloaded"
            assert all(len(task.result()) for task in spoken)
        assert server.meter("rejected_total") == 5


def test_health_fails_when_it_cannot_speak(subject: Subject, tmp_path: Path) -> None:
    """Its worker is killed and the model's files are gone; then they are back."""
    folder, away = tmp_path / "model", tmp_path / "away"
    shutil.copytree(subject.folder, folder)
    with serving(folder, tmp_path, subject.options) as server, httpx.Client(timeout=60) as client:
        assert client.get(f"{server.url}/health").status_code == 200
        folder.rename(away)
        os.kill(server.worker(), signal.SIGKILL)
        time.sleep(0.5)  # until it is noticed
        ill = client.get(f"{server.url}/health")
        assert (ill.status_code, ill.json()["status"]) == (503, "error")
        refused = client.post(f"{server.url}/v1/audio/speech", json=server.body(TEXT))
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert str(tmp_path) not in refused.text
        assert client.get(f"{server.url}/health/live").status_code == 200
        away.rename(folder)
        until = time.monotonic() + 60
        while client.get(f"{server.url}/health").status_code != 200:
            assert time.monotonic() < until
            time.sleep(0.1)
        assert server.speak(TEXT)


def test_who_takes_nothing_loses_its_place(subject: Subject, tmp_path: Path) -> None:
    flags = ("--max-requests", "1", "--stall", "1")
    with serving(subject.folder, tmp_path, subject.options, *flags) as server:
        fields = {"response_format": "wav", "sample_rate": 192_000}  # more than sockets hold
        body = json.dumps(server.body(LONG, **fields)).encode()
        with socket.create_connection(("127.0.0.1", int(server.url.rpartition(":")[2]))) as client:
            client.sendall(
                b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )
            while server.meter("speaking") == 0:
                time.sleep(0.01)
            assert server.speak(TEXT)
            if not subject.options:
                assert server.meter('requests_total{ending="gone"}') == 1


def test_sigterm_lets_who_speaks_finish(subject: Subject, solo: Solo, tmp_path: Path) -> None:
    with serving(subject.folder, tmp_path, subject.options) as server:
        with ThreadPoolExecutor(1) as pool:
            spoken = pool.submit(server.speak, f"{TEXT} {TEXT}", seed=1)
            while server.meter("speaking") == 0:
                time.sleep(0.01)
            time.sleep(0.2)
            worker = server.worker()
            server.process.terminate()
            assert spoken.result() == b"".join(encode([solo(f"{TEXT} {TEXT}", seed=1)], "pcm"))
        assert server.process.wait(30) == 0
        assert not Path(f"/proc/{worker}").exists()


def test_with_a_key_nothing_is_open_but_liveness(subject: Subject, tmp_path: Path) -> None:
    with serving(subject.folder, tmp_path, subject.options, NIGHTINGALE_API_KEY="sesame") as server:
        schema = httpx.get(f"{server.url}/openapi.json", headers={"x-api-key": "sesame"}).json()
        shut = {path: methods for path, methods in schema["paths"].items() if "health" not in path}
        assert len(shut) >= 12
        for path, methods in shut.items():
            for method in methods:
                reply = httpx.request(method, server.url + path.replace("{", "").replace("}", ""))
                assert reply.status_code == 401, (method, path)
                assert reply.json()["error"]["code"] == "invalid_api_key"
        for path in ("/", "/openapi.json", "/metrics", "/no/such/thing"):
            assert httpx.get(server.url + path).status_code == 401
        assert httpx.get(f"{server.url}/health/live").status_code == 200
        assert httpx.get(f"{server.url}/health", timeout=30).status_code == 200
        for headers in ({"authorization": "Bearer sesame"}, {"x-api-key": "sesame"}):
            assert httpx.get(f"{server.url}/v1/models", headers=headers).status_code == 200
        assert httpx.get(f"{server.url}/v1/models", auth=("me", "sesame")).status_code == 200
        assert httpx.get(f"{server.url}/v1/models", auth=("me", "sesam")).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://evil.example"}, {"host": "evil.example"}, {"origin": "null"}],
)
def test_pages_from_elsewhere_cannot_ask(server: Server, headers: dict[str, str]) -> None:
    reply = httpx.get(f"{server.url}/v1/models", headers=headers)
    assert reply.status_code == 403
    assert "access-control-allow-origin" not in reply.headers


def test_what_is_too_large_is_refused(server: Server) -> None:
    def endless() -> object:
        for _ in range(40):
            yield b" " * 2**20

    facts = httpx.post(f"{server.url}/v1/audio/speech", content=b" " * (33 * 2**20))
    untold = httpx.post(f"{server.url}/v1/audio/speech", content=endless())  # type: ignore[arg-type]
    assert (facts.status_code, untold.status_code) == (413, 413)


def test_the_pages_need_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/docs", "/page/page.js", "/page/mel.js", "/page/docs.js", "/page/page.css"):
        reply = httpx.get(server.url + path)
        assert reply.status_code == 200
        assert "default-src 'self'" in reply.headers["content-security-policy"]
        namespace = "http://www.w3.org/2000/svg"  # a name, which nobody fetches
        text = reply.text.replace("`${scheme}://${location.host}", "").replace(namespace, "")
        assert "://" not in text
    assert httpx.get(f"{server.url}/page/..%2fapp.py").status_code == 404
    assert httpx.get(f"{server.url}/page/page.py").status_code == 404


def test_the_normalized_text_is_shown(server: Server) -> None:
    body = {"input": "Am 3. Mai: 12,50 EUR. Gut.", "language": "de"}
    reply = httpx.post(f"{server.url}/v1/audio/normalize", json=body).json()
    assert reply["text"].replace("\n", " ") == "Am dritten Mai: zwölf Euro fünfzig. Gut."
    assert reply["locale"] == "de"
    assert {"written": "12,50 EUR.", "spoken": "zwölf Euro fünfzig."} in reply["changed"]
    off = httpx.post(f"{server.url}/v1/audio/normalize", json={**body, "normalization": "off"})
    assert off.json()["changed"] == []
    wrong = httpx.post(f"{server.url}/v1/audio/normalize", json={**body, "normalization": "xx"})
    assert wrong.status_code == 400
    spoken = server.body(TEXT, normalization="xx")
    assert httpx.post(f"{server.url}/v1/audio/speech", json=spoken).status_code == 400


def test_normalization_is_an_option_of_a_request(server: Server, solo: Solo) -> None:
    text = "It costs 25 kg."
    for normalization in ("auto", "off"):
        body = server.speak(text, seed=7, normalization=normalization)
        samples = solo(text, seed=7, normalization=normalization)
        assert body == b"".join(encode([samples], "pcm"))


def test_pronunciations_of_a_request(server: Server, solo: Solo) -> None:
    entry = {"term": "nginx", "replacement": "engine ex"}
    body = server.speak("It runs nginx.", seed=7, pronunciations=[entry])
    bound = [{**entry, "language": "en"}, {**entry, "replacement": "nix", "language": "de"}]
    for language in ("en", "auto"):
        asked = {"pronunciations": bound, "language": language}
        assert server.speak("It runs nginx.", seed=7, **asked) == body
    samples = solo("It runs engine ex.", seed=7)
    assert body == b"".join(encode([samples], "pcm"))
    wrong = server.body(TEXT, pronunciations=[{"term": "a"}])
    assert httpx.post(f"{server.url}/v1/audio/speech", json=wrong).status_code == 400
