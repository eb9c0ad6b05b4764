"""Who may ask: keys are kept as SHA-256 sums, each with its limits."""

from __future__ import annotations

import hashlib
import hmac
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nightingale.errors import BusyError, OptionError
from nightingale.server.bucket import TokenBucket

_SHA256 = re.compile(r"[0-9a-f]{64}")
_MINUTE_S = 60.0


class QuotaError(BusyError):
    """This key's own limit was reached, whatever others do."""


@dataclass(slots=True, eq=False)
class Key:
    """One who may ask, and how much."""

    name: str
    sha256: str
    max_streams: int | None = None  # at once
    max_characters: int | None = None  # a minute
    admin: bool = False  # may use and delete the voices of all keys
    _n_streams: int = field(default=0, init=False)
    _bucket: TokenBucket | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if self.max_characters is not None:
            self._bucket = TokenBucket(self.max_characters, self.max_characters / _MINUTE_S)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Counted while it lasts; refused if there are too many."""
        if self.max_streams is not None and self._n_streams >= self.max_streams:
            raise QuotaError(f"this API key allows {self.max_streams} streams at once")
        self._n_streams += 1
        try:
            yield
        finally:
            self._n_streams -= 1

    def spend(self, n_characters: int) -> int:
        """Characters that were counted, at least 1; refused if there are too many in a minute."""
        n_counted = max(1, n_characters)
        if self._bucket is not None and (wait_s := self._bucket.take(n_counted)):
            n_most = self.max_characters
            advice = "; split the text" if n_counted > self._bucket.capacity else ""
            raise QuotaError(f"this API key allows {n_most} characters per minute{advice}", wait_s)
        return n_counted

    def refund(self, n_characters: int) -> None:
        """What was spent on a request that was then refused."""
        if self._bucket is not None:
            self._bucket.give_back(n_characters)

    @contextmanager
    def quota(self, n_characters: int) -> Iterator[None]:
        """A request within both limits; if the server is too busy for it, nothing was spent."""
        n_spent = self.spend(n_characters)
        try:
            with self.turn():
                yield
        except BusyError:
            self.refund(n_spent)
            raise


ANYBODY = Key("anybody", "")  # where no key is asked for


def owner_of(key: Key, address: str) -> str:
    """Who shares the server fairly with others: an API key, or an address where there is none."""
    return f"address {address}" if key is ANYBODY else f"key {key.name}"


class Keys:
    """All of them; none: everybody may ask."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def find(self, given: str) -> Key | None:
        """Every key is compared, and each comparison takes as long as any other."""
        digest = hashlib.sha256(given.encode()).hexdigest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.sha256, digest):
                found = key
        return found

    @classmethod
    def read(cls, file: Path | None, plain: str | None) -> Keys:
        """From a TOML file with a table for each name, and one that the environment holds."""
        keys = [] if file is None else list(_parse(file))
        if plain:
            digest = hashlib.sha256(plain.encode()).hexdigest()
            keys.append(Key("environment", digest, admin=True))  # it is the operator's
        return cls(keys)


def _parse(file: Path) -> Iterator[Key]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the keys in {file} cannot be read: {error}") from error
    for name, table in tables.items():
        admin = table.pop("admin", False) if isinstance(table, dict) else False
        if not isinstance(admin, bool):
            raise OptionError(f"{file}: [{name}] admin is {admin!r}, but must be true or false")
        known = {"sha256", "max_streams", "max_characters"}
        is_table = isinstance(table, dict) and set(table) <= known
        if not is_table or not _SHA256.fullmatch(str(table.get("sha256"))):
            raise OptionError(
                f"{file}: [{name}] needs sha256 = the SHA-256 of the key in hexadecimal, and may "
                "have max_streams, max_characters (per minute) and admin (true or false)"
            )
        for limit in sorted(known - {"sha256"}):
            if limit in table and (type(table[limit]) is not int or table[limit] < 1):
                raise OptionError(f"{file}: [{name}] {limit} must be an integer of 1 or more")
        yield Key(name, admin=admin, **table)
    if not tables:
        raise OptionError(
            f"{file} contains no key, so every request would be refused; add one or drop --keys"
        )
