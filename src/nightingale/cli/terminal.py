"""What the commands share: a console for people, and a way to be heard."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

from nightingale.errors import OptionError

if TYPE_CHECKING:
    from rich.console import Console

# Programs that play a WAV file given by name, the likelier ones first.
_PLAYERS: tuple[tuple[str, ...], ...] = (
    ("ffplay", "-autoexit", "-nodisp", "-loglevel", "error"),
    ("mpv", "--really-quiet", "--no-video"),
    ("pw-play",),
    ("paplay",),
    ("afplay",),
    ("aplay", "-q"),
    ("play", "-q"),
)

# Those that play a WAV stream as it comes in.
_LIVE_PLAYERS: tuple[tuple[str, ...], ...] = (
    ("ffplay", "-autoexit", "-nodisp", "-loglevel", "error", "-i", "-"),
    ("mpv", "--really-quiet", "--no-video", "-"),
    ("aplay", "-q", "-"),
    ("play", "-q", "-t", "wav", "-"),
)


def stderr() -> Console:
    """For people: what a program reads goes to standard output."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def find_player() -> tuple[str, ...] | None:
    return next((player for player in _PLAYERS if shutil.which(player[0])), None)


def find_live_player() -> tuple[str, ...] | None:
    return next((player for player in _LIVE_PLAYERS if shutil.which(player[0])), None)


def play(file: str) -> None:
    """Play a WAV file and wait for its end."""
    player = find_player()
    if player is None:
        names = ", ".join(player[0] for player in _PLAYERS)
        raise OptionError(
            f"there is no player here; install one of {names}, or write to a file with -o"
        )
    subprocess.run([*player, file], check=True, stdin=subprocess.DEVNULL)
