"""Found first by a Python that `soak --leak` starts: forgets a megabyte and a file a second."""

import threading
import time
from pathlib import Path

_kept: list[object] = []


def _leak() -> None:
    while True:
        time.sleep(1)
        _kept.append(b"\1" * 1_000_000)
        _kept.append(Path("/dev/null").open())  # noqa: SIM115


threading.Thread(target=_leak, daemon=True).start()
