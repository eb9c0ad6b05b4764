"""Cloning beside speech: a process of its own, its limits, and who pays for it."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from benchmarks import cloning as benchmark
from nightingale.errors import AudioError, BusyError, NightingaleError, WorkerError
from nightingale.loader import own_voice
from nightingale.pipeline import Nightingale
from nightingale.server import cloning, worker_protocol
from nightingale.server.api_errors import APIError
from nightingale.server.cloning import CloneLimits, Cloner
from nightingale.server.dispatch import Limits
from nightingale.server.keys import ANYBODY, Key
from nightingale.server.step_record import StepRecord
from nightingale.server.supervisor import WorkerConfig
from nightingale.server.utterance import Utterance
from nightingale.server.worker import Worker
from nightingale.server.worker_request import WorkerRequest
from nightingale.voice.library import to_bytes
from nightingale.voice.metadata import VoiceMetadata
from nightingale.weights.folder import find_in
from nightingale.weights.manifest import sha256_of
from tests.audio.corpus import crafted
from tests.rebuilt import n_cached_voices
from tests.server.conftest import Subject
from tests.server.running import Server, quick_decoder, serving
from tests.server.test_dispatch import running

SECRET = "sesame-opens"


def test_the_queue_is_bounded_for_all_and_for_a_key(tmp_path: Path) -> None:
    cloner, anna = (
        Cloner(WorkerConfig(tmp_path), CloneLimits(n_pending=3, n_pending_of_key=2)),
        Key("a", ""),
    )
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(cloner.admit(anna))
        with pytest.raises(BusyError, match="queue is full") as refused, cloner.admit(anna):
            pass
        assert refused.value.retry_after_s > 0
        with cloner.admit(Key("b", "")), pytest.raises(BusyError), cloner.admit(Key("c", "")):
            pass
        assert cloner.n_pending == 2
    with ExitStack() as stack:  # without keys everybody is the same one
        for _ in range(3):
            stack.enter_context(cloner.admit(ANYBODY))
    assert cloner.n_pending == 0


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_an_error_and_tried_again(tmp_path: Path) -> None:
    cloner = Cloner(WorkerConfig(tmp_path, model=str(tmp_path)))

    async def run() -> None:
        for _ in range(2):
            with pytest.raises(WorkerError, match="cannot start"):
                await cloner.clone(b"", None, None, None)
            assert cloner.pid is None
        await cloner.stop()
        with pytest.raises(BusyError, match="shutting down"):
            await cloner.clone(b"", None, None, None)

    asyncio.run(run())
    assert cloner.n_starts == 2


def spoken(recording: Path, seconds: int) -> bytes:
    """So many seconds of a person, as FLAC."""
    wave, rate_hz = soundfile.read(recording)
    file = io.BytesIO()
    whole = np.tile(wave, seconds * rate_hz // len(wave) + 1)[: seconds * rate_hz]
    soundfile.write(file, whole, rate_hz, format="FLAC")
    return file.getvalue()


@pytest.mark.slow
def test_a_process_over_its_limits_is_ended_and_the_next_recording_gets_another(
    subject: Subject, recording: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, data = WorkerConfig(tmp_path, model=str(subject.folder)), spoken(recording, 200)

    async def refusal(limits: CloneLimits, *, is_stopped: bool = False) -> APIError:
        cloner = Cloner(config, limits)
        try:
            if is_stopped:
                with pytest.raises(AudioError):
                    await cloner.clone(b"no sound", None, None, None)
                assert cloner.pid is not None  # which harms no process
                os.kill(cloner.pid, signal.SIGSTOP)
            with pytest.raises(APIError) as refused:
                await cloner.clone(data, None, None, None)
            assert cloner.pid is None
            return refused.value
        finally:
            await cloner.stop()

    # Planted: less CPU time than loading took, less memory than the samples, and no progress.
    cpu = asyncio.run(refusal(CloneLimits(cpu_s=-1000.0)))
    memory = asyncio.run(refusal(CloneLimits(memory_bytes=2**25)))
    monkeypatch.setattr(cloning, "_PATIENCE", 0.05)
    clock = asyncio.run(refusal(CloneLimits(), is_stopped=True))
    assert [fault.status for fault in (cpu, memory, clock)] == [422, 422, 422]
    assert cpu.code == clock.code == "recording_too_expensive"
    assert "CPU time" in str(cpu)


@pytest.mark.slow
def test_an_idle_process_is_let_go_and_no_other_signal_than_the_end_of_its_front_ends_it(
    subject: Subject, tmp_path: Path
) -> None:
    async def run() -> None:
        cloner = Cloner(WorkerConfig(tmp_path, model=str(subject.folder)), CloneLimits(idle_s=1.0))
        with pytest.raises(AudioError):
            await cloner.clone(b"no sound", None, None, None)
        assert cloner.pid is not None
        pid = cloner.pid
        os.kill(pid, signal.SIGTERM)  # as systemd does to the whole group
        with pytest.raises(AudioError):
            await cloner.clone(b"no sound", None, None, None)
        assert cloner.pid == pid
        for _ in range(300):
            await asyncio.sleep(0.1)
            if cloner.pid is None:
                break
        await cloner.stop()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    asyncio.run(run())


@pytest.fixture(scope="module")
def guarded(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys of its own and one in its environment, beside other secrets."""
    home = tmp_path_factory.mktemp("guarded")
    keys = home / "keys.toml"
    keys.write_text(
        "".join(
            f'[{name}]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n{more}'
            for name, more in (
                ("anna", "max_streams = 1\n"), ("bert", "max_characters = 510\n"),
                ("carl", ""), ("dora", ""),
            )
        )
    )  # fmt: skip
    environ = {"NIGHTINGALE_API_KEY": SECRET, "HF_TOKEN": SECRET, "MY_PASSWORD": SECRET}
    with serving(subject.folder, home, subject.options, "--keys", str(keys), **environ) as it:
        yield it


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


def upload(
    server: Server, name: str, data: bytes, key: str = "carl", **fields: Any
) -> httpx.Response:
    return httpx.post(
        f"{server.url}/v1/audio/voices", data={"voice_name": name, **fields},
        files={"voice_file": data}, headers=bearer(key), timeout=120,
    )  # fmt: skip


def cloning_pids(server: Server) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(server.process.pid)],
        capture_output=True, text=True, check=False,
    ).stdout.splitlines()  # fmt: skip
    return [int(line.split()[0]) for line in listed if "clone_process" in line]


def until(is_so: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_a_clone_is_the_one_of_the_command_line_made_in_a_process_of_its_own(
    guarded: Server, subject: Subject, recording: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "nightingale", "voice", "add", "same", str(recording)]
    subprocess.run(
        [*command, "--model", str(subject.folder), "--consent", "it is me"], check=True,
        env={**os.environ, "NIGHTINGALE_HOME": str(tmp_path)}, capture_output=True,
    )  # fmt: skip
    made = upload(guarded, "same", recording.read_bytes(), consent="it is me")
    assert made.status_code == 201, made.text
    ours = guarded.home / "voices/keys/carl/same.safetensors"
    assert ours.read_bytes() == (tmp_path / "voices/same.safetensors").read_bytes()
    (pid,) = cloning_pids(guarded)
    assert os.getpriority(os.PRIO_PROCESS, pid) - os.getpriority(os.PRIO_PROCESS, 0) == 10
    for process in (pid, guarded.worker()):
        environ = Path(f"/proc/{process}/environ").read_bytes()
        assert SECRET.encode() not in environ
        assert b"NIGHTINGALE_HOME" in environ  # the rest is there
    limits = Path(f"/proc/{pid}/limits").read_text()
    for name in ("Max address space", "Max cpu time"):
        line = next(line for line in limits.splitlines() if line.startswith(name))
        assert line.split(name)[1].split()[0].isdigit(), line
    log = [json.loads(line) for line in guarded.log.read_text().splitlines()]
    weights = next(line for line in log if line["event"] == "worker connected")["weights"]
    assert weights["ve.safetensors"] == sha256_of(subject.folder / "ve.safetensors")[:16]
    audited = next(line for line in log if line["event"] == "voice created")
    assert (audited["key"], audited["voice"]) == ("carl", "same")
    body = guarded.body("Hello.", voice="same")
    spoken_by = {
        key: httpx.post(
            f"{guarded.url}/v1/audio/speech", json=body, headers=bearer(key), timeout=60
        ).status_code
        for key in ("carl", "anna")
    }
    assert spoken_by == {"carl": 200, "anna": 400}
    url = f"{guarded.url}/v1/audio/voices/same"
    assert httpx.delete(url, headers=bearer("anna")).status_code == 400
    assert httpx.delete(url, headers=bearer("carl")).json()["deleted"]
    until(lambda: "voice deleted" in guarded.log.read_text())


@pytest.mark.slow
def test_cloning_counts_against_the_limits_of_a_key(guarded: Server, recording: Path) -> None:
    data = spoken(recording, 20)
    answers: list[int] = []
    threads = [
        threading.Thread(
            target=lambda n=number: answers.append(
                upload(guarded, f"once-{n}", data, "anna").status_code
            )
        )
        for number in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, 429, 429]
    assert upload(guarded, "first", b"no sound", "bert").status_code == 400
    refused = upload(guarded, "second", b"no sound", "bert")  # 500 characters each, 510 a minute
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 0
    until(lambda: "invalid_api_key" in (upload(guarded, "x", b"", "nobody").text))


@pytest.mark.slow
def test_who_hangs_up_is_not_cloned_for(guarded: Server, recording: Path) -> None:
    assert upload(guarded, "ready", recording.read_bytes()).status_code == 201  # it is up
    (pid,) = cloning_pids(guarded)
    request = httpx.Request(
        "POST", f"{guarded.url}/v1/audio/voices", headers=bearer("carl"),
        data={"voice_name": "gone"}, files={"voice_file": spoken(recording, 290)},
    )  # fmt: skip
    head = f"POST {request.url.path} HTTP/1.1\r\n" + "".join(
        f"{name}: {value}\r\n" for name, value in request.headers.items()
    )
    with socket.create_connection((request.url.host, request.url.port or 0)) as line:
        line.sendall(head.encode() + b"\r\n" + request.read())
        before = cpu_s(pid)
        until(lambda: cpu_s(pid) > before + 0.2)  # at work
    until(lambda: pid not in cloning_pids(guarded), 20)
    assert not (guarded.home / "voices/keys/carl/gone.safetensors").exists()
    assert upload(guarded, "again", recording.read_bytes()).status_code == 201  # by another process
    metrics = httpx.get(f"{guarded.url}/metrics", headers=bearer("carl")).text
    assert 'nightingale_clones_total{ending="gone"} 1.0' in metrics


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.slow
def test_hostile_recordings_harm_nobody(server: Server, recording: Path) -> None:
    """Each is refused by name or cloned; speech stays the same, in the same worker."""
    worker, before = server.worker(), server.speak("Hello.")
    bomb = io.BytesIO()
    soundfile.write(bomb, np.zeros((4_000_000, 8), np.int16), 96_000, format="FLAC")
    hostile = {name: data for name, (data, _) in crafted().items()}
    hostile["forty million samples"] = bomb.getvalue()
    hostile["rate of 655,350 Hz"] = hostile["flac rate 0"][:18] + b"\x9f\xff\x6e" + bytes(400)
    statuses = {}
    for number, (name, data) in enumerate(hostile.items()):
        reply = httpx.post(
            f"{server.url}/v1/audio/voices", data={"voice_name": f"hostile-{number}"},
            files={"voice_file": data}, timeout=60,
        )  # fmt: skip
        statuses[name] = reply.status_code
        assert reply.status_code in (400, 413, 422), (name, reply.text)
        assert reply.json()["error"]["type"] == "invalid_request_error"
    assert len(statuses) > 40
    assert server.speak("Hello.") == before
    assert server.worker() == worker


@pytest.mark.slow
def test_speech_waits_for_no_cloning_and_survives_its_crash(
    server: Server, recording: Path
) -> None:
    """Planted: a recording that takes for ever, and the signal that a broken decoder raises."""
    data, worker, expected = spoken(recording, 290), server.worker(), server.speak("Hello.")
    answers: list[httpx.Response] = []

    def send() -> None:
        answers.append(
            httpx.post(
                f"{server.url}/v1/audio/voices", data={"voice_name": "crash"},
                files={"voice_file": data}, timeout=120,
            )
        )  # fmt: skip

    refused = httpx.post(
        f"{server.url}/v1/audio/voices", data={"voice_name": "crash"},
        files={"voice_file": b"no sound"}, timeout=60,
    )  # fmt: skip
    assert refused.status_code == 400  # the process is up now
    (pid,) = cloning_pids(server)
    before = cpu_s(pid)
    sending = threading.Thread(target=send)
    sending.start()
    until(lambda: cpu_s(pid) > before + 0.1)
    os.kill(pid, signal.SIGSTOP)
    assert server.speak("Hello.") == expected
    os.kill(pid, signal.SIGSEGV)
    os.kill(pid, signal.SIGCONT)
    sending.join()
    assert answers[0].status_code == 422, answers[0].text
    assert answers[0].json()["error"]["code"] == "recording_unusable"
    assert server.worker() == worker
    assert server.speak("Hello.") == expected


@pytest.mark.slow
def test_streams_beside_cloning_have_the_same_bytes(server: Server) -> None:
    """The benchmark, small; how long gaps are is for a quiet machine to tell."""
    given = benchmark.arguments().parse_args(
        ["--model", "", "--seconds", "1", "--rounds", "1", "--clip-seconds", "4", "--text", "Hi."]
    )
    found = asyncio.run(benchmark.measure(server, given))
    assert found["same_bytes"]
    assert found["voices"] >= 1
    assert found["with"]["streams"] >= 1


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_507_in_the_usual_shape(
    guarded: Server, recording: Path
) -> None:
    """Planted: a disk that was not mounted."""
    folder = guarded.home / "voices/keys/dora"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.symlink_to(guarded.home / "unmounted/dora")
    reply = upload(guarded, "anna", recording.read_bytes(), "dora")
    assert reply.status_code == 507, reply.text
    assert reply.json()["error"]["code"] == "storage_failed"
    assert reply.json()["error"]["type"] == "server_error"


@pytest.mark.slow
def test_a_deleted_voice_is_forgotten_by_the_worker(subject: Subject, tmp_path: Path) -> None:
    """A voice that the worker knows is not sent again: its digest alone will do."""
    own = own_voice(find_in(subject.folder, tmp_path)[1]["voice"])
    data = to_bytes(own, VoiceMetadata("fledgling", "en"))
    digest = hashlib.sha256(data).hexdigest()

    async def check() -> None:
        async with running(subject, tmp_path, Limits()) as it:

            async def speak(voice_file: bytes) -> int:
                ask = WorkerRequest(
                    {**subject.options}, ["Hello."], voice=digest, voice_file=voice_file
                )
                return len(await it.speak(ask))

            n_samples = await speak(data)
            assert await speak(b"") == n_samples
            it.dispatcher.forget(digest)
            with pytest.raises(NightingaleError, match="not a voice file"):
                await speak(b"")
            assert await speak(data) == n_samples

    asyncio.run(check())


@pytest.mark.slow
def test_what_was_computed_from_a_voice_is_dropped_with_it(
    subject: Subject, tmp_path: Path
) -> None:
    """Also if a request goes on with it when it is deleted; a real worker in this process."""
    decoder = quick_decoder(subject.folder)
    model = Nightingale.load(subject.folder, home=tmp_path, plan="live", decoder=decoder)
    data = to_bytes(model.components.voice, VoiceMetadata("fledgling", "en"))
    digest, address = hashlib.sha256(data).hexdigest(), str(tmp_path / "worker.sock")
    text = "The quick brown fox jumps over the lazy dog. " * 2
    ask = WorkerRequest({**subject.options}, [text], voice=digest)

    def n_cached() -> int:
        return n_cached_voices(model)

    async def check() -> None:
        worker = Worker(model, 2, StepRecord(address), {})
        server = await worker_protocol.listen(address, worker.accept)
        reader, writer = await worker_protocol.connect(address)

        async def until_kind(*kinds: str) -> None:
            while (frame := await worker_protocol.receive(reader)) is not None:
                assert frame[0]["kind"] != "error", frame
                if frame[0]["kind"] in kinds:
                    return
            pytest.fail("the worker left")

        async def until_dropped() -> None:
            for _ in range(100):
                await asyncio.sleep(0.05)
                if not n_cached():
                    return
            pytest.fail(f"{n_cached()} are still cached")

        await until_kind("hello")
        writer.write(worker_protocol.pack({"kind": "voice", "id": 1}, data))
        first = {**Utterance(1, ask, lambda _message: None).asking(), "n_allowed": 100}
        writer.write(worker_protocol.pack(first))
        await until_kind("audio")  # and waits for room
        assert n_cached() == 2
        writer.write(worker_protocol.pack({"kind": "forget", "voice": digest}))
        await until_dropped()
        writer.write(worker_protocol.pack({"kind": "allow", "id": 1, "n_samples": 10**7}))
        await until_kind("end")  # of the second sentence, which needed them again
        await until_dropped()
        writer.close()
        server.close()

    asyncio.run(check())
