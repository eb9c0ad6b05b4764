"""All families by MLX against the torch backend: the same tokens, nearly the same numbers."""

from __future__ import annotations

import pytest

from benchmarks import mlx_equality as equality
from tests.tiny_release import Releases

equality.fast_blas()
pytest.importorskip("mlx.core", reason="MLX is not installed")

DECODERS = {"turbo": "meanflow", "nano": "meanflow"}
FAMILIES = ("english", "multilingual-hi", "turbo", "nano")
# With these random weights, torch's own logits are up to 1.2e-4 from those in float64.
RANDOM_SLACK = 2.0
TEXT = "Hello there, it is late."


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_small_models_of_all_families_equal_torch(name: str, releases: Releases) -> None:
    decoders = [DECODERS.get(name, "standard")]
    found = equality.compare(releases(name), [TEXT], decoders=decoders, max_tokens=20)
    assert not found.faults(RANDOM_SLACK)
    assert found.n_tokens == 20
    assert len(found.mel) == len(found.samples) == 2


@pytest.mark.slow
def test_fledgling_equals_torch() -> None:
    found = equality.compare("fledgling", ["Yes."], decoders=["meanflow"])
    assert not found.faults()
    assert found.n_same_utterances == 1
    assert found.logits > 0  # it is not torch that was compared with itself


@pytest.mark.slow
@pytest.mark.parametrize("weights", list(equality.MAX_QUANTIZED))
def test_fewer_bits_stay_within_their_bound(weights: str) -> None:
    found = equality.compare("fledgling", ["It is late, and nobody minds."], weights)
    assert not found.faults(t3=weights)
    assert found.logits_rms > equality.MAX_QUANTIZED[weights] / 10  # they are really fewer


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "part"), [("rotation", "logits"), ("alignment", "mel")])
def test_a_planted_fault_is_found(fault: str, part: str, releases: Releases) -> None:
    with equality.broken(fault):
        found = equality.compare(releases("english"), [TEXT], decoders=["standard"], max_tokens=10)
    assert any(part in one for one in found.faults(RANDOM_SLACK))
