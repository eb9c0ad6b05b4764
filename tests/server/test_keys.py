"""Keys: kept as sums, each with its limits."""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

import pytest

from nightingale.errors import BusyError, OptionError
from nightingale.server.bucket import TokenBucket
from nightingale.server.keys import ANYBODY, Key, Keys, QuotaError


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
     f'[anna]\nsha256 = "{"0" * 64}"\ncolour = "red"',
     f'[anna]\nsha256 = "{"0" * 64}"\nmax_streams = 0',
     f'[anna]\nsha256 = "{"0" * 64}"\nmax_characters = "many"'],
)  # fmt: skip
def test_a_broken_file_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(OptionError):
        Keys.read(file, None)
    with pytest.raises(OptionError):
        Keys.read(tmp_path / "nowhere.toml", None)


def test_a_token_bucket_allows_a_burst_and_then_its_rate() -> None:
    now = [0.0]
    bucket = TokenBucket(100, 10, lambda: now[0])
    assert bucket.take(100) == 0
    assert bucket.take(50) == 5.0  # seconds, and nothing was taken
    now[0] = 5.0
    assert bucket.take(50) == 0
    assert bucket.take(1) == 0.1
    now[0] = 1000.0
    assert bucket.take(101) == 0.1  # more than it ever holds is never taken
    assert bucket.take(100) == 0  # and no more than its capacity came in the meantime
    bucket.give_back(30)
    assert bucket.take(30) == 0
    assert bucket.force(20) == 2.0  # a debt
    assert bucket.take(10) == 3.0


def test_what_a_busy_server_refused_is_not_spent() -> None:
    key = Key("anna", sum_of("open"), max_streams=1, max_characters=100)
    for _ in range(5):
        with pytest.raises(BusyError), key.quota(100):
            raise BusyError("the server is busy")
    with key.turn():
        for _ in range(5):
            with pytest.raises(QuotaError, match="1 streams"), key.quota(100):
                pass
    with key.quota(100):
        pass
    with pytest.raises(QuotaError, match="100 characters"), key.quota(1):
        pass
    with pytest.raises(QuotaError, match="split the text"), key.quota(101):
        pass


def test_empty_texts_count_and_a_million_of_them_take_constant_time_and_memory() -> None:
    """A list of what was spent grew with each call, and each call went through all of it."""
    key = Key("anna", sum_of("open"), max_characters=1_000_000)
    size, took = sys.getsizeof(key), []
    for _ in range(4):
        begun = time.perf_counter()
        for _ in range(10_000):
            key.spend(0)
        took.append(time.perf_counter() - begun)
    assert sys.getsizeof(key) == size
    assert min(took[1:]) < 20 * took[0]  # 4 s against 0.02 s with a list
    with pytest.raises(QuotaError):
        key.spend(990_000)


def test_an_administrator_is_named_in_the_file_or_holds_the_key_of_the_environment(
    tmp_path: Path,
) -> None:
    file = tmp_path / "keys.toml"
    for value, is_admin in (("true", True), ("false", False)):
        file.write_text(f'[anna]\nsha256 = "{sum_of("open")}"\nadmin = {value}\n')
        keys = Keys.read(file, "third")
        found = [keys.find(key) for key in ("open", "third")]
        assert [key is not None and key.admin for key in found] == [is_admin, True]
    file.write_text(f'[anna]\nsha256 = "{sum_of("open")}"\nadmin = "no"\n')
    with pytest.raises(OptionError, match="must be true or false"):
        Keys.read(file, None)
