"""Found first by a Python that `fleet_streams` starts: workers of two kinds, in turn."""

import os
import sys
from pathlib import Path

if "nightingale.server.worker" in sys.orig_argv:
    counter = Path(os.environ["MIXED_WORKERS"])
    with counter.open("ab") as file:
        file.write(b".")
    if counter.stat().st_size % 2 == 0:
        os.environ["ATEN_CPU_CAPABILITY"] = "default"
