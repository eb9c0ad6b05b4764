"""Which step a worker was computing when it died.

The worker writes it into a shared memory map beside its socket before each step and clears it
behind; the map outlives the process, however that ended, and the front reads it then. Steps of a
request are the same in every worker, so the same place twice is no coincidence.
"""

from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_LAYOUT = struct.Struct("<4Q")


class Step(NamedTuple):
    """A place in the work of a worker."""

    connection: int  # number of the connection that the request came by, from 1 on
    request: int
    part: int  # of the text
    step: int  # within the part


_NONE = Step(0, 0, 0, 0)


class StepRecord:
    """The worker's side."""

    def __init__(self, address: str) -> None:
        """For a worker that listens at a path; elsewhere nobody could read it."""
        self._map: mmap.mmap | None = None
        if "/" in address:
            with _path(address).open("w+b") as file:
                file.truncate(_LAYOUT.size)
                self._map = mmap.mmap(file.fileno(), _LAYOUT.size)

    def write(self, step: Step) -> None:
        if self._map is not None:
            _LAYOUT.pack_into(self._map, 0, *step)

    def clear(self) -> None:
        self.write(_NONE)


def read(address: str) -> Step | None:
    """The step that was never finished; None: there is none, or it is not known."""
    step = _NONE
    with suppress(OSError, struct.error):
        step = Step(*_LAYOUT.unpack(_path(address).read_bytes()))
    return None if step == _NONE else step


def _path(address: str) -> Path:
    return Path(f"{address}.step")
