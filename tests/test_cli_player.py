"""Playing: which program, and that silence is an error."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from nightingale.cli import player
from nightingale.errors import PlayerError

FFPLAY_WITHOUT_A_CARD = (
    "ALSA lib pcm.c:2666:(snd_pcm_open_noupdate) Unknown PCM default\n"
    "No more combinations to try, audio open failed\n"
    "Failed to open file 't.wav' or configure filtergraph\n"
)

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Programs on the path, and no others but the shell's."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("cat", "cp", "head"):
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))

    def put(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)

    return put


def silent_ffplay(install: Install, tmp_path: Path) -> None:
    (tmp_path / "noise").write_text(FFPLAY_WITHOUT_A_CARD)
    install("ffplay", f"cat {tmp_path}/noise >&2; cat > /dev/null; exit 0")


def test_a_player_that_fails_is_an_error_in_one_line(install: Install, tmp_path: Path) -> None:
    install("aplay", "echo 'aplay: main:831: audio open error: No such file' >&2; exit 1")
    with pytest.raises(PlayerError, match="aplay: main:831: audio open error") as failure:
        player.play("t.wav")
    assert "\n" not in str(failure.value)


def test_ffplay_without_a_sound_card_is_an_error_although_it_exits_with_0(
    install: Install, tmp_path: Path
) -> None:
    silent_ffplay(install, tmp_path)
    with pytest.raises(PlayerError, match="audio open failed"):
        player.play("t.wav")
    with pytest.raises(PlayerError, match="audio open failed"), player.live() as sink:
        sink.write(b"RIFF")


def test_the_next_player_is_tried(install: Install, tmp_path: Path) -> None:
    silent_ffplay(install, tmp_path)
    install("pw-play", "echo no server >&2; exit 1")
    install("play", f'cp "$2" {tmp_path}/heard')
    (tmp_path / "t.wav").write_bytes(b"sound")
    player.play(str(tmp_path / "t.wav"))
    assert (tmp_path / "heard").read_bytes() == b"sound"


def test_the_next_player_hears_a_stream_from_its_beginning(
    install: Install, tmp_path: Path
) -> None:
    install("aplay", "head -c 3 > /dev/null; echo busy >&2; exit 1")
    silent_ffplay(install, tmp_path)
    install("play", f"cat > {tmp_path}/heard")
    pieces = [bytes([number]) * 50_000 for number in range(20)]
    with player.live() as sink:
        for piece in pieces:
            sink.write(piece)
    assert (tmp_path / "heard").read_bytes() == b"".join(pieces)


def test_a_player_that_fails_in_the_middle_is_not_followed(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sound would begin again."""
    monkeypatch.setattr(player, "_START_S", 0.0)
    install("aplay", "head -c 600000 > /dev/null; echo unplugged >&2; exit 1")
    install("play", f"cat > {tmp_path}/heard")
    with pytest.raises(PlayerError, match="aplay: unplugged"), player.live() as sink:
        for _ in range(100):
            sink.write(bytes(50_000))
    assert not (tmp_path / "heard").exists()


def test_a_listener_may_close_the_player(install: Install) -> None:
    install("ffplay", "head -c 10 > /dev/null; exit 0")
    with player.live() as sink, pytest.raises(BrokenPipeError):
        for _ in range(100):
            sink.write(bytes(100_000))


def test_without_a_player_nothing_is_begun(install: Install) -> None:
    for is_live in (False, True):
        with pytest.raises(PlayerError, match=r"install one of .*aplay.*-o FILE"):
            player.require(is_live=is_live)
    install("afplay", "")
    player.require(is_live=True)  # it is played when all is spoken
    assert player.find_live_players() == []


def test_preferred_players_report_errors(install: Install) -> None:
    for name in ("ffplay", "aplay", "mpv"):
        install(name, "")
    assert [command[0] for command in player.find_players()] == ["aplay", "ffplay", "mpv"]
    assert player.find_live_players()[0][0] == "aplay"
