"""Where training keeps what it fetches and makes: never inside the checkout.

NIGHTINGALE_TRAINING names the folder; without it, ~/.cache/nightingale-training.
"""

from __future__ import annotations

import os
from pathlib import Path


def work() -> Path:
    """The work folder: assets/, texts/, corpus/, log/ and whatever later steps add."""
    return Path(
        os.environ.get("NIGHTINGALE_TRAINING", "~/.cache/nightingale-training")
    ).expanduser()
