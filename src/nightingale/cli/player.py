"""Programs that play sound: which are here, and whether anything was heard.

Some players exit with 0 when there is no sound card, so what they print is read as well. A player
that cannot start is followed by the next one; if none can, that is an error.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from nightingale.errors import PlayerError

# A file by name. Those come first that report errors by their exit code.
_PLAYERS: tuple[tuple[str, ...], ...] = (
    ("afplay",),  # macOS
    ("pw-play",),
    ("paplay",),
    ("aplay", "-q"),
    ("ffplay", "-autoexit", "-nodisp", "-loglevel", "error"),
    ("mpv", "--no-video", "--no-terminal", "--msg-level=all=error"),
    ("play", "-q"),
)

# A WAV stream on standard input, as it arrives.
_LIVE_PLAYERS: tuple[tuple[str, ...], ...] = (
    ("aplay", "-q", "-"),
    ("ffplay", "-autoexit", "-nodisp", "-loglevel", "error", "-i", "-"),
    ("mpv", "--no-video", "--no-terminal", "--msg-level=all=error", "-"),
    ("play", "-q", "-t", "wav", "-"),
)

_WINSOUND = ("winsound",)  # not a program: Python's own, on Windows
_SILENT = re.compile(
    r"audio open failed|Couldn't open audio|Could not open/initialize audio|no sound\b", re.I
)
_START_S = 3.0  # a player that fails within this time never played
_START_BYTES = 96_000  # and some open the sound card only when they have seen so much
_HINT = "check the sound card, or write to a file with -o FILE"


def find_players() -> list[tuple[str, ...]]:
    """Those on this machine that play a file, the preferred one first."""
    builtin = [_WINSOUND] if sys.platform == "win32" else []
    return builtin + [command for command in _PLAYERS if shutil.which(command[0])]


def find_live_players() -> list[tuple[str, ...]]:
    """Those that play a stream as it arrives."""
    return [command for command in _LIVE_PLAYERS if shutil.which(command[0])]


def require(*, is_live: bool) -> None:
    """Refuse to start work whose result nobody could hear."""
    if find_players() or (is_live and find_live_players()):
        return
    names = ", ".join(command[0] for command in _PLAYERS)
    raise PlayerError(
        f"there is no player here: install one of {names}, or write with -o FILE, or -o - to a pipe"
    )


def play(file: str) -> None:
    """Play a WAV file and wait for its end."""
    require(is_live=False)
    failures = []
    for command in find_players():
        started = time.monotonic()
        why = _play_builtin(file) if command == _WINSOUND else _play_by(command, file)
        if why is None:
            return
        failures.append(f"{command[0]}: {why}")
        if time.monotonic() - started > _START_S:
            break  # it had begun: another one would begin again
    raise PlayerError(f"the sound could not be played ({'; '.join(failures)}); {_HINT}")


def _play_by(command: tuple[str, ...], file: str) -> str | None:
    done = subprocess.run(
        [*command, file],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    return failure(done.returncode, done.stderr)


def _play_builtin(file: str) -> str | None:
    if sys.platform == "win32":
        import winsound

        try:
            winsound.PlaySound(file, winsound.SND_FILENAME)
        except RuntimeError as error:
            return str(error)
    return None


def failure(returncode: int, printed: bytes) -> str | None:
    """Why nothing was heard, in a few words; None if it was played."""
    lines = [line.strip() for line in printed.decode(errors="replace").splitlines()]
    telling = [line for line in lines if _SILENT.search(line)]
    if telling:
        return telling[-1]
    if returncode == 0:
        return None
    own = [line for line in lines if line and not line.startswith("ALSA lib")]
    reason = own[0] if own else "it printed no reason"
    return f"{reason} (exit code {returncode})"


@dataclass(slots=True)
class _Running:
    """A player that takes a stream."""

    command: tuple[str, ...]
    process: subprocess.Popen[bytes]
    printed: IO[bytes]
    n_bytes: int = 0  # that it was given
    fed_at: float = math.inf  # when that was enough to start

    @classmethod
    def start(cls, command: tuple[str, ...]) -> _Running:
        printed = tempfile.TemporaryFile()  # noqa: SIM115  # a pipe that nobody reads could fill up
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=printed
        )
        return cls(command, process, printed)

    @property
    def is_playing(self) -> bool:
        """It had all it needs to start, and did not fail."""
        return self.process.poll() is None and time.monotonic() - self.fed_at > _START_S

    def write(self, piece: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(piece)
        self.process.stdin.flush()
        self.n_bytes += len(piece)
        if self.n_bytes >= _START_BYTES:
            self.fed_at = min(self.fed_at, time.monotonic())

    def end(self) -> str | None:
        """Let it play what it has; why nothing was heard, if so."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()
        returncode = self.process.wait()
        with self.printed:
            self.printed.seek(0)
            return failure(returncode, self.printed.read())


class LivePlayer:
    """A sink for WAV bytes. While a player may still fail to start, the next one can take over."""

    def __init__(self) -> None:
        self._left = find_live_players()
        self._failures: list[str] = []
        self._sent: list[bytes] = []  # all bytes so far, until a player is known to play
        self._is_playing = False
        self._running: _Running | None = None

    def write(self, piece: bytes) -> None:
        """Raises BrokenPipeError when a listener has closed the player."""
        running = self._running or self._next()
        if running.is_playing:
            self._is_playing = True
            self._sent.clear()
        if not self._is_playing:
            self._sent.append(piece)
        try:
            running.write(piece)
        except OSError:
            self._replace(running)

    def close(self) -> None:
        """Wait until all is played."""
        while self._running is not None:
            running, self._running = self._running, None
            why = running.end()
            if why is not None:
                self._retry(running, why)

    def kill(self) -> None:
        """Stop at once, in the middle."""
        if self._running is not None:
            self._running.process.kill()
            self._running.end()
            self._running = None

    def _next(self) -> _Running:
        if not self._left:
            raise PlayerError(
                f"the sound could not be played ({'; '.join(self._failures)}); {_HINT}"
            )
        self._running = _Running.start(self._left.pop(0))
        return self._running

    def _replace(self, running: _Running) -> None:
        """It does not take any more: closed by its listener, or it could not start?"""
        self._running = None
        why = running.end()
        if why is None:
            raise BrokenPipeError
        self._retry(running, why)

    def _retry(self, running: _Running, why: str) -> None:
        self._failures.append(f"{running.command[0]}: {why}")
        if self._is_playing:
            self._left.clear()  # another one would begin again
        again = self._next()
        try:
            for piece in self._sent:
                again.write(piece)
        except OSError:
            self._replace(again)


@contextmanager
def live() -> Iterator[LivePlayer]:
    """A player for one stream; an error while it plays ends it at once."""
    sink = LivePlayer()
    try:
        yield sink
    except BaseException:
        sink.kill()
        raise
    sink.close()
