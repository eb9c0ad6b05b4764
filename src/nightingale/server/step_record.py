"""Which steps a worker was computing when it died: one, or those of a batch.

The worker writes them into a shared memory map beside its socket before each step and clears them
behind; the map outlives the process, however that ended, and the front reads it then. Steps of a
request are the same in every worker, so the same place twice is no coincidence.
"""

from __future__ import annotations

import mmap
import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from nightingale.scheduler import MAX_BATCH

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
        self._steps: list[Step] = []
        if "/" in address:
            with _path(address).open("w+b") as file:
                file.truncate(MAX_BATCH * _LAYOUT.size)
                self._map = mmap.mmap(file.fileno(), MAX_BATCH * _LAYOUT.size)

    def begin(self, step: Step) -> None:
        self._steps.append(step)
        self._write()

    def end(self, step: Step) -> None:
        """One that was never begun is no mistake."""
        with suppress(ValueError):
            self._steps.remove(step)
            self._write()

    def _write(self) -> None:
        """All of them at once; behind the last there are zeros."""
        if self._map is not None:
            packed = b"".join(_LAYOUT.pack(*step) for step in self._steps[:MAX_BATCH])
            self._map[:] = packed.ljust(MAX_BATCH * _LAYOUT.size, b"\0")


def read(address: str) -> list[Step]:
    """The steps that were never finished; nothing: there are none, or they are not known."""
    with suppress(OSError, struct.error):
        steps = (Step(*numbers) for numbers in _LAYOUT.iter_unpack(_path(address).read_bytes()))
        return [step for step in steps if step != _NONE]
    return []


def _path(address: str) -> Path:
    return Path(f"{address}.step")
