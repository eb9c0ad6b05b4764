"""`nightingale voice` on voices that are there already: no model, no recording."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from nightingale.cli import app
from nightingale.voice.folder import BUILT_IN, Folder
from nightingale.voice.library import VoiceLibrary, to_bytes
from nightingale.voice.metadata import VoiceMetadata, is_voice_file, read_metadata
from tests.voice.test_library import CARD, some_voice

Voice = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    VoiceLibrary(tmp_path / "home/voices").save("anna", some_voice(), CARD)
    return tmp_path / "home"


@pytest.fixture
def voice(home: Path) -> Voice:
    def call(*arguments: str | Path) -> Result:
        words = ["voice", *map(str, arguments)]
        return CliRunner().invoke(app, words, env={"NIGHTINGALE_HOME": str(home)})

    return call


@pytest.mark.parametrize("name", ["anna.voice", "anna", "anna.wav", "anna.safetensors", "Änna.m4a"])
def test_an_exported_voice_is_imported_whatever_its_name(
    voice: Voice, home: Path, tmp_path: Path, name: str
) -> None:
    done = voice("export", "anna", tmp_path / name)
    assert (done.exit_code, str(tmp_path / name) in done.stderr) == (0, True), done.stderr
    assert voice("add", "twin", tmp_path / name).exit_code == 0
    files = [home / f"voices/{who}.safetensors" for who in ("anna", "twin")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_export_into_a_folder_takes_the_name_of_the_voice(voice: Voice, tmp_path: Path) -> None:
    assert voice("export", "anna", tmp_path).exit_code == 0
    assert read_metadata(tmp_path / "anna.safetensors") == CARD


def test_export_overwrites_only_with_force(voice: Voice, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "precious.txt"
    file.write_text("a diary")
    refused = voice("export", "anna", file)
    assert (refused.exit_code, "--force" in refused.stderr) == (1, True)
    assert file.read_text() == "a diary"
    assert voice("export", "anna", file, "--force").exit_code == 0
    assert is_voice_file(file)
    own = home / "voices/anna.safetensors"
    assert voice("export", "anna", own, "--force").exit_code == 1  # onto itself
    assert is_voice_file(own)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_export_says_why_a_file_cannot_be_written(voice: Voice, tmp_path: Path) -> None:
    done = voice("export", "anna", tmp_path / "none/anna")
    assert done.exit_code == 1
    assert "No such file or directory" in done.stderr
    assert voice("export", "bert", tmp_path).exit_code == 1


def test_import_takes_another_consent_and_language(
    voice: Voice, home: Path, tmp_path: Path
) -> None:
    voice("export", "anna", tmp_path / "a.b")
    assert voice("add", "twin", tmp_path / "a.b", "--consent", "by mail").exit_code == 0
    metadata = read_metadata(home / "voices/twin.safetensors")
    assert (metadata.consent, metadata.language) == ("by mail", CARD.language)


@pytest.mark.slow
def test_voices_are_listed_exported_and_removed_without_torch(home: Path) -> None:
    """One process for all of them: what any of them imports stays imported."""
    export = ["export", "anna", str(home / "a.voice")]
    code = (
        "import sys; from nightingale.cli import app\n"
        f"for words in (['list'], {export!r}, ['remove', 'anna']):\n"
        "    try: app(['voice', *words])\n"
        "    except SystemExit as end: assert end.code == 0, words\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NIGHTINGALE_HOME": str(home)}, check=True,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (home / "a.voice").exists()
    imported = set(done.stderr.split())
    assert "typer" in imported
    assert imported.isdisjoint({"torch", "numpy", "safetensors"})


def test_the_list_shows_what_is_known_of_each_voice(voice: Voice, home: Path) -> None:
    VoiceLibrary(home / "voices").save(
        "zoe", some_voice(), VoiceMetadata("turbo", None, None, "a\x1b[31m\nb")
    )
    (home / "voices/broken.safetensors").write_bytes(b"no voice")
    file = home / "voices/anna.safetensors"
    os.utime(file, (1.7e9, 1.7e9))  # noon of 14 November 2023, give or take a zone
    rows = [line.split() for line in voice("list").stdout.splitlines()]
    assert rows[0] == ["name", "model", "language", "added", "consent"]
    assert rows[1][:3] == ["anna", "multilingual", "de"]
    assert rows[1][3].startswith("2023-11-1")
    assert rows[1][4:] == ["my", "own", "voice"]
    assert rows[2][:2] == ["broken", "(damaged)"]
    assert (rows[-1][:2], rows[-1][-1]) == (["zoe", "turbo"], "b")
    built_in = {row[0] for row in rows if row[1:5] == ["fledgling", "en", "built", "in"]}
    assert built_in == set(Folder(BUILT_IN).names())
    assert "\x1b" not in voice("list").stdout


def test_an_empty_list_says_how_to_make_a_voice(voice: Voice) -> None:
    voice("remove", "anna")
    done = voice("list")
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert (done.exit_code, names) == (0, Folder(BUILT_IN).names())
    assert "nightingale voice add" in done.stderr


def header(metadata: object) -> bytes:
    text = json.dumps({"__metadata__": metadata}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"RIFF\0\0\0\0WAVE",
        b"\xff" * 100,
        bytes(100),
        (2**62).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"{}",
        (50_000).to_bytes(8, "little") + b"[" * 50_000,
        header({"format": "pt"}),
        header(None),
        header(["voice"]),
    ],
)
def test_what_is_no_voice_file_is_not_taken_for_one(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert not is_voice_file(tmp_path / "file")


def test_pipes_and_folders_are_no_voice_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody will ever write into it
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "none", Path("/dev/zero")):
        assert not is_voice_file(path)


@pytest.mark.parametrize(
    "said",
    [
        "not JSON",
        "[]",
        "{}",
        json.dumps({"family": "soprano"}),
        json.dumps({"family": ["turbo"]}),
        json.dumps({"family": "turbo", "consent": 7}),
        json.dumps({"family": "turbo", "output_gain_db": 1e9}),
        '{"family": "turbo", "output_gain_db": NaN}',
        json.dumps({"family": "turbo", "gain_db": "loud"}),
        json.dumps({"family": "turbo", "speed": 9}),
        '{"family": "turbo", "speed": NaN}',
    ],
)
def test_a_voice_file_with_a_broken_card_is_refused_in_one_sentence(
    voice: Voice, tmp_path: Path, said: str
) -> None:
    (tmp_path / "broken").write_bytes(header({"voice": said}))
    done = voice("add", "bert", tmp_path / "broken")
    assert done.exit_code == 1
    assert "broken is not a voice file" in done.stderr
    assert done.stderr.count("\n") == 1


def test_files_of_older_and_newer_versions_are_read(tmp_path: Path) -> None:
    """Version 0.1.0 wrote these four entries; a later one may add some."""
    old = {"family": "turbo", "language": None, "source_sha256": None, "consent": "me"}
    for said in (old, {**old, "mood": "merry"}):
        (tmp_path / "file").write_bytes(header({"voice": json.dumps(said)}))
        assert read_metadata(tmp_path / "file") == VoiceMetadata("turbo", consent="me")


def test_the_card_of_a_file_is_the_one_it_was_made_with(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(to_bytes(some_voice(), CARD))
    assert read_metadata(tmp_path / "file") == CARD
