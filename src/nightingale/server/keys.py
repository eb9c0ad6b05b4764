"""Who may ask: keys are kept as SHA-256 sums, each with its limits."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nightingale.errors import BusyError, OptionError

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
    _n_streams: int = field(default=0, init=False)
    _spent: list[tuple[float, int]] = field(default_factory=list, init=False)

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

    def spend(self, n_characters: int) -> None:
        """Counted for a minute; refused if it is too much."""
        if self.max_characters is None:
            return
        now = time.monotonic()
        self._spent = [spent for spent in self._spent if now - spent[0] < _MINUTE_S]
        n_spent = sum(n for _, n in self._spent)
        if n_spent + n_characters > self.max_characters:
            wait_s = self._spent[0][0] + _MINUTE_S - now if self._spent else _MINUTE_S
            raise QuotaError(
                f"this API key allows {self.max_characters} characters per minute", wait_s
            )
        self._spent.append((now, n_characters))


ANYBODY = Key("anybody", "")  # where no key is asked for


class Keys:
    """All of them; none: everybody may ask."""

    def __init__(self, keys: list[Key]) -> None:
        self._keys = keys

    def __bool__(self) -> bool:
        return bool(self._keys)

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
            keys.append(Key("environment", hashlib.sha256(plain.encode()).hexdigest()))
        return cls(keys)


def _parse(file: Path) -> Iterator[Key]:
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"the keys in {file} cannot be read: {error}") from error
    for name, table in tables.items():
        known = {"sha256", "max_streams", "max_characters"}
        is_table = isinstance(table, dict) and set(table) <= known
        if not is_table or not _SHA256.fullmatch(str(table.get("sha256"))):
            raise OptionError(
                f"{file}: [{name}] needs sha256 = the SHA-256 of the key in hexadecimal, and may "
                "have max_streams and max_characters (per minute)"
            )
        yield Key(name, **table)
    if not tables:
        raise OptionError(
            f"{file} contains no key, so every request would be refused; add one or drop --keys"
        )
