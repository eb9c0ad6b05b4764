"""Every test starts from the same place: no NIGHTINGALE_* or HF_* of the machine's owner.

torch is not imported at the top: the process that only hands tests to workers does without it.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import soundfile

# OpenMP reads it when torch is loaded: tests with two threads, beside another test process, must
# not spin for a processor that is taken. Programs that tests start do not inherit it (below).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def pytest_collection_finish(session: pytest.Session) -> None:
    if session.items:  # none where only workers collect
        import torch

        # Small models lose time to a second thread, and far more of it on a busy machine.
        torch.set_num_threads(1)
        os.environ.pop("OMP_WAIT_POLICY", None)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # for programs that tests start
        gc.freeze()  # what was imported stays: not to be looked through again and again


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("NIGHTINGALE_", "HF_")):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seconds that sound a little like a person: a gliding hum in syllables, with pauses."""
    file = tmp_path_factory.mktemp("recording") / "person.wav"
    time = np.arange(4 * 24_000) / 24_000
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * time)) / 24_000
    hum = sum(np.sin(phase * harmonic) / harmonic for harmonic in range(1, 12))
    syllables = np.clip(np.sin(2 * np.pi * 2.5 * time), 0, 1)
    noise = np.random.default_rng(0).normal(size=time.size) * 1e-4
    soundfile.write(file, (0.15 * hum * syllables + noise).astype(np.float32), 24_000)
    return file


@pytest.fixture(scope="session")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The small twin of a catalog model, made once for all test processes. Tests only read it."""
    from tests.tiny_release import make_release

    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "releases"

    def release(name: str) -> Path:
        if not (shared / name).exists():
            made = make_release(tmp_path_factory.mktemp("release") / name, name)
            shared.mkdir(exist_ok=True)
            with suppress(OSError):  # another process was first
                made.rename(shared / name)
        return shared / name

    return release


@pytest.fixture(scope="session")
def c_compiler() -> None:
    from tests.emulation import library as emulation

    if not emulation.compiler():
        pytest.skip("emulated instructions need Linux and a C compiler")


@pytest.fixture
def amx(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """AMX kernels by the processor's own instructions, or by emulated ones where it has none."""
    from nightingale.nn import native
    from tests.emulation import library as emulation

    if native.amx() is None:
        request.getfixturevalue("c_compiler")
        monkeypatch.setattr(native, "amx", lambda: emulation.emulated("amx"))
