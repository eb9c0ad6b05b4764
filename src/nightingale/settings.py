"""What the environment may say. Every NIGHTINGALE_* variable is declared here and nowhere else.

HF_HOME, HF_HUB_OFFLINE, HF_TOKEN and HF_ENDPOINT belong to huggingface_hub, which reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from nightingale.errors import SettingsError

_PREFIX = "NIGHTINGALE_"


@dataclass(frozen=True, slots=True)
class Settings:
    """One field per variable: `home` is NIGHTINGALE_HOME."""

    home: Path  # where converted weights and voices live
    api_key: str | None = None  # that clients of `serve` must show

    @classmethod
    def read(cls, environ: Mapping[str, str]) -> Settings:
        """Read the variables; one that is not declared here is a spelling mistake, and said so."""
        known = {_PREFIX + name.upper() for name in cls.__dataclass_fields__}
        unknown = sorted(name for name in environ if name.startswith(_PREFIX) and name not in known)
        if unknown:
            raise SettingsError(
                f"unknown environment variable {unknown[0]}; known are {', '.join(sorted(known))}"
            )
        home = environ.get("NIGHTINGALE_HOME", "~/.nightingale")
        return cls(Path(home).expanduser(), environ.get("NIGHTINGALE_API_KEY") or None)
