"""All families by MLX against the torch backend: the same tokens, nearly the same numbers."""

from __future__ import annotations

import pytest

from benchmarks import mlx_equality as equality
from tests.tiny_release import Releases

pytest.importorskip("mlx.core", reason="MLX is not installed")

DECODERS = {"turbo": "meanflow", "nano": "meanflow"}
FAMILIES = ("english", "multilingual-hi", "turbo", "nano")
# With these random weights, torch's own logits are up to 1.2e-4 from those in float64, and MLX's up
# to 1.1e-4; samples are three times as large as those of speech.
RANDOM_SLACK = 2.0
SENTENCES = ("Hello there, it is late.", "Nobody minds.")


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_small_models_of_all_families_equal_torch(name: str, releases: Releases) -> None:
    decoders = [DECODERS.get(name, "standard")]
    found = equality.compare(releases(name), SENTENCES, decoders=decoders, max_tokens=30)
    assert not found.faults(RANDOM_SLACK)
    assert found.n_tokens > 40
    assert len(found.mel) == len(found.samples) == 2


@pytest.mark.slow
def test_fledgling_equals_torch() -> None:
    found = equality.compare("fledgling", SENTENCES[1:], decoders=["meanflow"])
    assert not found.faults()
    assert found.n_same_utterances == 1
    assert found.logits > 0  # it is not torch that was compared with itself


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "part"), [("rotation", "logits"), ("alignment", "mel")])
def test_a_planted_fault_is_found(fault: str, part: str, releases: Releases) -> None:
    with equality.broken(fault):
        found = equality.compare(
            releases("english"), SENTENCES[:1], decoders=["standard"], max_tokens=30
        )
    assert any(part in one for one in found.faults(RANDOM_SLACK))
