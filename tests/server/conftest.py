"""A model that speaks, and what it says when nobody else is there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nightingale
from nightingale.pipeline import Nightingale
from tests.server.running import Server, quick_decoder, serving
from tests.tiny_release import make_release

BUNDLED = Path(nightingale.__file__).parent / "fledgling"


@dataclass(frozen=True, slots=True)
class Subject:
    """The model under test; one of random weights never ends by itself."""

    folder: Path
    options: dict[str, Any]


@pytest.fixture(scope="session")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """The small trained model if it is there, else a random one."""
    trained = os.environ.get("NIGHTINGALE_TEST_MODEL")
    if (BUNDLED / "t3_cfg.safetensors").is_file():
        return Subject(BUNDLED, {})
    if trained:
        return Subject(Path(trained), {})
    folder = make_release(tmp_path_factory.mktemp("release"), "english")
    return Subject(folder, {"max_tokens": 40})


Solo = Callable[..., NDArray[np.float32]]


@pytest.fixture(scope="session")
def solo(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Solo:
    """The same request, alone and in this process; once, however many tests ask for it."""
    home = tmp_path_factory.mktemp("solo")
    decoder = quick_decoder(subject.folder)
    model = Nightingale.load(subject.folder, home=home, plan="live", decoder=decoder)

    known: dict[str, NDArray[np.float32]] = {}

    def speak(text: Any, voice: Any = None, **options: Any) -> NDArray[np.float32]:
        key = repr((text, options)) if voice is None and isinstance(text, str | list) else None
        if key is not None and key in known:
            return known[key]
        chunks = model.stream(text, voice, **{**subject.options, **options})
        samples = np.concatenate([chunk.samples for chunk in chunks])
        samples.flags.writeable = False
        if key is not None:
            known[key] = samples
        return samples

    return speak


@pytest.fixture(scope="session")
def server(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all tests that leave it as they found it.

    It speaks for many at once, however slow the machine is: admission by speed has its own tests.
    """
    home = tmp_path_factory.mktemp("home")
    with serving(subject.folder, home, subject.options, "--max-factor", "0") as it:
        yield it
