"""Every test starts from the same place: no NIGHTINGALE_* or HF_* of the machine's owner."""

from __future__ import annotations

import os

import pytest
import torch

# Small models lose time to a second thread, and far more of it on a busy machine.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("NIGHTINGALE_", "HF_")):
            monkeypatch.delenv(name)
