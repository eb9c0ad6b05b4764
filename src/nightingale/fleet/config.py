"""The file that describes a fleet: Ray Serve's own format, with our fields as the app's `args`.

The same file is given to `nightingale fleet up`, to `serve deploy` and to KubeRay. Unknown names
are errors: a typo must not become a default on a hundred machines. Knows nothing of Ray.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from nightingale.core import AUTO
from nightingale.errors import MissingPackageError, OptionError

IMPORT_PATH = "nightingale.fleet.app:application"
_FILE_FIELDS = ("proxy_location", "http_options", "applications", "logging_config")


@dataclass(frozen=True, slots=True)
class FleetConfig:
    """What each replica is, and how many there may be."""

    model: str | None = None
    home: str | None = None  # of models; None: as the environment says
    voices: str | None = None  # shared store: a folder or an fsspec URL; None: the home's
    backend: str = "torch"
    device: str = "auto"
    decoder: str | None = None
    plan: str = AUTO
    watermark: bool = True
    threads: int | None = None
    max_streams: int = 8  # that a replica computes beside each other
    max_waiting: int = 16  # for one of those to end
    max_open: int | None = None  # streams, also those that wait for text; None: 4 * max_streams
    max_queued: int = 32  # requests that Ray keeps for a replica; more are refused: 503
    max_factor: float = 0.9
    max_characters: int = 20_000
    min_replicas: int = 1
    max_replicas: int = 1
    streams_per_replica: float = 4.0  # live streams that autoscaling aims at
    min_slack_s: float = 0.5  # playback time that the tightest stream should have left
    upscale_delay_s: float = 5.0
    downscale_delay_s: float = 300.0
    drain_s: float = 30.0
    cpus: float = 1.0  # of a replica, for Ray's placement
    gpus: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> FleetConfig:
        """From `args`; a name that is not known, or a value of another type, is an OptionError."""
        known = {field.name: field for field in fields(cls)}
        for name, value in given.items():
            if name not in known:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise OptionError(f"{name!r} is no setting of a fleet{hint}")
            if not _fits(value, str(known[name].type)):
                raise OptionError(f"{name} is {value!r}, but must be {known[name].type}")
        config = cls(**given)
        if not 1 <= config.min_replicas <= config.max_replicas:
            raise OptionError(
                f"min_replicas is {config.min_replicas} and max_replicas {config.max_replicas}; "
                "give 1 <= min_replicas <= max_replicas"
            )
        return config

    @property
    def max_ongoing(self) -> int:
        """Requests in a replica: streams, those that wait, and a few questions beside them."""
        return (self.max_open or 4 * self.max_streams) + self.max_waiting + 8


def read(file: Path) -> dict[str, Any]:
    """The file of a fleet, checked; `args_of` has our part of it."""
    try:
        import yaml  # noqa: PLC0415 - comes with Ray
    except ModuleNotFoundError as error:
        raise missing(error) from error
    try:
        given = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise OptionError(f"{file} is not YAML") from error
    if not isinstance(given, dict) or set(given) - set(_FILE_FIELDS):
        raise OptionError(f"{file} must have the fields {', '.join(_FILE_FIELDS)} and no others")
    FleetConfig.of(args_of(given))
    return given


def args_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings in a file of Ray Serve."""
    apps = given.get("applications") or []
    ours = [app for app in apps if app.get("import_path") == IMPORT_PATH]
    if len(ours) != 1:
        raise OptionError(f"give one application with import_path: {IMPORT_PATH}")
    return dict(ours[0].get("args") or {})


def missing(error: ModuleNotFoundError) -> MissingPackageError:
    return MissingPackageError(
        f"a fleet needs more packages ({error.name} is missing); get them with "
        "pip install 'nightingale-tts[fleet]'"
    )


def _fits(value: Any, kind: str) -> bool:
    if value is None:
        return "None" in kind
    allowed: dict[str, tuple[type, ...]] = {
        "str": (str,), "bool": (bool,), "int": (int,), "float": (int, float)
    }  # fmt: skip
    name = kind.split(" ", maxsplit=1)[0]
    return isinstance(value, allowed[name]) and (name == "bool" or not isinstance(value, bool))
