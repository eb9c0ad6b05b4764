"""A private folder for the sockets of one server, and an end to those of servers that were killed.

A server holds a lock on a file in its folder. A folder whose lock is free belongs to nobody.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger("nightingale.scratch")

_PREFIX, _LOCK = "nightingale-", "lock"


@contextmanager
def private_folder(parent: Path | None = None) -> Iterator[Path]:
    """Only for this user, and only until the end of the block, or of this process."""
    parent = parent or Path(tempfile.gettempdir())
    remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent) as name:
        folder = Path(name)
        draft = folder / f"{_LOCK}.new"
        with draft.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            draft.rename(folder / _LOCK)  # it is never there without being held
            yield folder


def remove_abandoned(parent: Path) -> None:
    """Folders whose server is gone."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError), (folder / _LOCK).open("r+") as file:
            if folder.stat().st_uid != os.getuid():
                continue
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
            log.info("temporary folder of a killed server removed")
