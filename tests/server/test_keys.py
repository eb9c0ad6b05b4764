"""Keys: kept as sums, each with its limits."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from nightingale.errors import OptionError
from nightingale.server.keys import ANYBODY, Keys, QuotaError


def sum_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def test_a_key_is_found_by_its_sum_and_keeps_its_limits(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(
        f'[anna]\nsha256 = "{sum_of("open")}"\nmax_streams = 1\nmax_characters = 100\n'
        f'[bert]\nsha256 = "{sum_of("sesame")}"\n'
    )
    keys = Keys.read(file, "third")
    anna, bert = keys.find("open"), keys.find("sesame")
    assert anna is not None
    assert bert is not None
    assert (anna.name, bert.name) == ("anna", "bert")
    assert keys.find("third") is not None
    assert keys.find("") is keys.find("nobody") is None
    with anna.turn(), pytest.raises(QuotaError, match="1 streams"), anna.turn():
        pass
    with anna.turn():
        pass
    anna.spend(90)
    with pytest.raises(QuotaError, match="100 characters") as refused:
        anna.spend(11)
    assert 0 < refused.value.retry_after_s <= 60
    anna.spend(10)
    bert.spend(10**9)


def test_without_keys_everybody_may_ask() -> None:
    assert not Keys.read(None, None)
    with ANYBODY.turn(), ANYBODY.turn():
        ANYBODY.spend(10**9)


@pytest.mark.parametrize(
    "text",
    ["", "nonsense", "[anna]", "[anna]\nsha256 = 7", '[anna]\nsha256 = "open"', "anna = 1",
     f'[anna]\nsha256 = "{"0" * 64}"\ncolour = "red"'],
)  # fmt: skip
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(OptionError):
        Keys.read(file, None)
    with pytest.raises(OptionError):
        Keys.read(tmp_path / "nowhere.toml", None)
