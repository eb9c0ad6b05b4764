"""The last step of training/second, as it is called there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nightingale.audio import files
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.voice.metadata import read_metadata
from nightingale.weights.manifest import BUNDLE
from training.built_in import VOICES
from training.clips import Corpus

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests/quality/voices/bf_emma_known.ogg"


@pytest.mark.slow
def test_voices_are_cloned_into_the_folder_of_the_new_model(tmp_path: Path) -> None:
    samples = (files.read(RECORDING, SAMPLES_PER_SECOND) * 32767).astype(np.int16)
    for teacher in VOICES.values():
        Corpus(tmp_path / "corpus", teacher).add("a", "A text.", "a", samples, "train")
    model = tmp_path / "model"
    shutil.copytree(BUNDLE, model, ignore=shutil.ignore_patterns("voices"))
    subprocess.run(
        [sys.executable, "-m", "training.built_in", str(model)],
        env={**os.environ, "NIGHTINGALE_TRAINING": str(tmp_path)},
        cwd=ROOT,
        check=True,
    )
    made = sorted((model / "voices").iterdir())
    assert [file.stem for file in made] == sorted(VOICES)
    assert {read_metadata(file).family for file in made} == {"fledgling"}
