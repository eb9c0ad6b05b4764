"""Whose voices are whose: the real application and real files, no model."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightingale.errors import VoiceError
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext
from nightingale.server.keys import ANYBODY, Key
from nightingale.server.middleware import AccessMiddleware
from nightingale.server.models_and_voices import storage
from nightingale.server.voices import OPENAI, Voices, built_in_voices
from nightingale.voice.folder import BUILT_IN, Folder, suggestion
from tests.server.test_middleware import ask, make_gate

ANNA, BERT, ADMIN = Key("anna", ""), Key("Bert & Co", ""), Key("root", "", admin=True)


@pytest.fixture
def voices(tmp_path: Path) -> Voices:
    """One shared voice, and one that Anna and Bert each have under the same name."""
    voices = Voices(tmp_path / "voices")
    voices.put("radio", b"shared", ANYBODY)
    voices.put("mine", b"of anna", ANNA)
    voices.put("mine", b"of bert", BERT)
    return voices


def test_a_key_sees_its_own_voices_and_the_shared_ones(voices: Voices) -> None:
    assert voices.names(ANNA) == ["default", "mine", "radio"]
    assert voices.names(ANYBODY) == ["default", "radio"]
    assert voices.find("mine", ANNA).data == b"of anna"
    assert voices.find("Mine.wav", BERT).data == b"of bert"
    assert voices.find("radio", ANNA).data == voices.find("radio", BERT).data == b"shared"
    for name in ("mine", "anna:mine"):
        with pytest.raises(VoiceError, match="there is no voice"):
            voices.find(name, ANYBODY)
    with pytest.raises(VoiceError, match="there is no voice"):
        voices.find("anna:mine", BERT)


def test_voices_that_come_with_the_model_are_everybodys_and_stay(tmp_path: Path) -> None:
    Folder(tmp_path / "package").put("emma", b"built in")
    voices = Voices(tmp_path / "voices", built_in=tmp_path / "package")
    assert voices.names(ANNA) == voices.names(ADMIN) == ["default", "emma"]
    assert (voices.built_in(), voices.cloned(ANNA)) == (["emma"], [])
    for key in (ANNA, ADMIN, ANYBODY):
        assert voices.find("Emma", key).data == b"built in"
        with pytest.raises(VoiceError, match="built in"):
            voices.remove("emma", key)
    voices.put("emma", b"of anna", ANNA)
    assert voices.find("emma", ANNA).data == b"of anna"
    assert voices.find("emma", BERT).data == b"built in"
    voices.remove("emma", ANNA)
    assert voices.find("emma", ANNA).data == b"built in"
    with pytest.raises(VoiceError, match="there is no voice"):
        Voices(tmp_path / "voices").find("emma")
    assert built_in_voices("fledgling") == BUILT_IN
    assert built_in_voices("multilingual") is None


def test_only_an_administrator_reaches_the_voices_of_others(voices: Voices) -> None:
    other = next(name for name in voices.names(ADMIN) if name.startswith("sha256-"))
    assert voices.names(ADMIN) == ["default", "anna:mine", "radio", other]
    assert voices.find("anna:mine", ADMIN).data == b"of anna"
    assert voices.remove(other, ADMIN).data == b"of bert"
    with pytest.raises(VoiceError, match="there is no voice"):
        voices.find("mine", BERT)
    assert voices.find("mine", ANNA).data == b"of anna"
    voices.put("news", b"of the operator", ADMIN)
    assert voices.find("news", BERT).data == b"of the operator"


def test_a_shared_voice_is_deleted_by_administrators_alone(voices: Voices) -> None:
    with pytest.raises(VoiceError, match="admin = true"):
        voices.remove("radio", ANNA)
    voices.remove("radio", ADMIN)
    assert "radio" not in voices.names(ANNA)


@pytest.mark.parametrize("name", ["alloy", "default", "nightingale", *OPENAI])
def test_reserved_names_cannot_be_taken(voices: Voices, name: str) -> None:
    for key in (ANNA, ADMIN, ANYBODY):
        with pytest.raises(VoiceError, match="reserved"):
            voices.put(name, b"", key)
    assert voices.find(name, ANNA).digest is None


def test_names_that_are_taken_or_no_names_are_refused(voices: Voices) -> None:
    for name in ("mine", "radio", "../x", "bert:x", ""):
        with pytest.raises(VoiceError):
            voices.put(name, b"", ANNA)
    for owner in ("..", "/etc", "a" * 300, "Anna", "anna/", "\0"):  # TOML allows any of these
        voices.put("mine", owner.encode(), Key(owner, ""))
        assert voices.find("mine", Key(owner, "")).data == owner.encode()
    assert voices.find("mine", ANNA).data == b"of anna"


def test_voice_files_are_private(voices: Voices, tmp_path: Path) -> None:
    for path in (tmp_path / "voices").rglob("*"):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path
    assert not list((tmp_path / "voices").rglob(".*"))  # no drafts


def test_a_deleted_voice_is_not_cached(voices: Voices) -> None:
    voices.find("mine", ANNA)
    assert any(kept.data == b"of anna" for _, kept in voices._cache.values())
    voices.remove("mine", ANNA)
    assert not any(kept.data == b"of anna" for _, kept in voices._cache.values())


@pytest.mark.slow
def test_a_large_library_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2_000):
        (tmp_path / f"voice-{number}.safetensors").touch()
    then = time.time_ns() - 10**10
    os.utime(tmp_path, ns=(then, then))
    n_listed, scandir = 0, os.scandir

    def counted(path: Any) -> Any:
        nonlocal n_listed
        n_listed += 1
        return scandir(path)

    monkeypatch.setattr("nightingale.voice.folder.os.scandir", counted)
    voices, folder = Voices(tmp_path), Folder(tmp_path)
    for _ in range(10):
        assert len(folder.names()) == 2_000
        voices.find("voice-7", ANNA)  # needs no list at all
    assert n_listed == 1
    folder.put("fresh", b"")
    assert "fresh" in folder.names()
    folder.remove("fresh")
    assert "fresh" not in folder.names()
    with pytest.raises(VoiceError) as unknown:
        voices.find("voice-77x", ANNA)
    assert "voice-77" in str(unknown.value)
    assert len(str(unknown.value)) < 200


def test_an_unknown_name_brings_few_names() -> None:
    names = sorted(f"person-{number:05}" for number in range(20_000))
    assert suggestion("person-00012x", names).count("person-") <= 3
    assert suggestion("zzz", names) == "there are 20000 others"
    assert suggestion("x", ["a", "b"]) == "there are: a, b"


def test_a_disk_that_cannot_be_written_is_507() -> None:
    with pytest.raises(APIError) as full, storage():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert full.value.status == 507
    assert full.value.body["error"]["type"] == "server_error"
    assert "No space left" in str(full.value)


@pytest.fixture
def gate(tmp_path: Path) -> AccessMiddleware:
    """With keys for three."""
    lines = [
        f'["{name}"]\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n{more}'
        for name, more in (("anna", ""), ("Bert & Co", ""), ("root", "admin = true\n"))
    ]
    file = tmp_path / "keys.toml"
    file.write_text("".join(lines))
    return make_gate(tmp_path, keys=file)


def front_of(gate: AccessMiddleware) -> ServerContext:
    return gate._context


def as_key(
    gate: AccessMiddleware, name: str, method: str, path: str, **more: Any
) -> httpx.Response:
    return ask(gate, method, path, headers={"authorization": f"Bearer {name}"}, **more)


def test_keys_are_told_apart_over_http(gate: AccessMiddleware) -> None:
    voices = front_of(gate).voices
    voices.put("mine", b"of anna", ANNA)
    voices.put("radio", b"shared", ANYBODY)
    listed = {
        name: as_key(gate, name, "GET", "/v1/audio/voices").json()["voices"]
        for name in ("anna", "Bert & Co", "root")
    }
    assert "mine" in listed["anna"]
    assert "mine" not in listed["Bert & Co"]
    assert "anna:mine" in listed["root"]
    assert as_key(gate, "Bert & Co", "GET", "/get_reference_files").json() == ["radio"]
    spoken = {"input": "Hi.", "voice": "mine"}
    refused = as_key(gate, "Bert & Co", "POST", "/v1/audio/speech", json=spoken)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "voice_not_found")
    for name in ("mine", "radio", "anna:mine"):
        gone = as_key(gate, "Bert & Co", "DELETE", f"/v1/audio/voices/{name}")
        assert gone.status_code == 400, name
    assert as_key(gate, "anna", "DELETE", "/v1/audio/voices/mine").json()["deleted"]
    assert as_key(gate, "root", "DELETE", "/v1/audio/voices/radio").json()["deleted"]
    assert voices.names(ADMIN) == ["default"]


def test_a_receipt_is_for_the_key_that_asked(gate: AccessMiddleware) -> None:
    front_of(gate).recent.keep_receipt(ANNA.name, "abc", {"id": "abc", "seconds": 1})
    assert as_key(gate, "anna", "GET", "/v1/requests/abc").json()["seconds"] == 1
    for name in ("Bert & Co", "root"):
        assert as_key(gate, name, "GET", "/v1/requests/abc").status_code == 404
    other = {"id": "abc", "seconds": 2}  # clients choose ids
    front_of(gate).recent.keep_receipt(BERT.name, "abc", other)
    assert as_key(gate, "anna", "GET", "/v1/requests/abc").json()["seconds"] == 1


@pytest.mark.parametrize(
    ("body", "status", "what"),
    [
        ({"json": {"voice_name": "x"}}, 400, "multipart/form-data"),
        ({"data": {"voice_name": "x"}, "files": {"other": b""}}, 400, "voice_file"),
        ({"files": {"voice_file": b"x"}}, 400, "voice_name"),
        ({"data": {"voice_name": "alloy"}, "files": {"voice_file": b"x"}}, 400, "reserved"),
        ({"data": {"voice_name": "x" * 65}, "files": {"voice_file": b"x"}}, 400, "voice_name"),
        ({"data": {"voice_name": "x", "force": "perhaps"}, "files": {"voice_file": b"x"}}, 400,
         "force"),
        ({"data": {"voice_name": "x"}, "files": {"voice_file": bytes(25 * 2**20 + 1)}}, 413,
         "25 MB"),
        ({"files": [("voice_file", b"x")] * 9}, 400, "damaged"),
        ({"content": b"--x\r\n", "headers": {"content-type": "multipart/form-data"}}, 400,
         "boundary"),
    ],
)  # fmt: skip
def test_uploads_that_cannot_be_cloned_start_no_process(
    tmp_path: Path, body: dict[str, Any], status: int, what: str
) -> None:
    gate = make_gate(tmp_path)
    reply = ask(gate, "POST", "/v1/audio/voices", **body)
    assert reply.status_code == status, reply.text
    assert what in reply.json()["error"]["message"]
    assert front_of(gate).cloner.n_starts == 0
    assert front_of(gate).cloner.n_pending == 0


def test_requests_that_are_refused_are_counted_by_status(gate: AccessMiddleware) -> None:
    for _ in range(3):
        assert as_key(gate, "nobody", "GET", "/v1/audio/voices").status_code == 401
    assert as_key(gate, "anna", "GET", "/v1/requests/none").status_code == 404
    metrics = as_key(gate, "anna", "GET", "/metrics").text
    assert 'nightingale_refused_total{status="401"} 3.0' in metrics
    assert 'nightingale_refused_total{status="404"} 1.0' in metrics
    assert 'nightingale_refused_total{status="403"} 0.0' in metrics
