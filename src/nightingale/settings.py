"""What the environment may say. Every NIGHTINGALE_* variable is declared here, but for those of
`serve`, which are the options of that command: NIGHTINGALE_SERVE_PORT is `--port`.

HF_HOME, HF_HUB_OFFLINE, HF_TOKEN and HF_ENDPOINT belong to huggingface_hub, which reads them.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger("nightingale.settings")

_PREFIX = "NIGHTINGALE_"
SERVE_PREFIX = _PREFIX + "SERVE_"
_READ_ELSEWHERE = ("NIGHTINGALE_TRAINING", "NIGHTINGALE_TEST_MODEL")  # training/, tests/

# What Kubernetes and Docker links set for a Service of the name nightingale or nightingale-...
_SERVICE_LINK = re.compile(
    r"NIGHTINGALE_(\w+_)?"
    r"(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_SECRET = re.compile(r"(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIALS?)(_|$)")
_LINK_URL = re.compile(r"(tcp|udp|sctp)://\S+")  # NIGHTINGALE_PORT=tcp://10.96.0.7:8004


@dataclass(frozen=True, slots=True)
class Settings:
    """One field per variable: `home` is NIGHTINGALE_HOME."""

    home: Path  # where converted weights and voices live
    api_key: str | None = None  # that clients of `serve` must show

    @classmethod
    def read(
        cls, environ: Mapping[str, str], serve_options: Iterable[str] | None = None
    ) -> Settings:
        """Read the variables; one that is not known is named in a warning, and changes nothing.

        `serve_options` are the names of that command's options, for who knows them; without them,
        variables of `serve` are not judged.
        """
        own = {_PREFIX + name.upper() for name in cls.__dataclass_fields__}
        serve = {SERVE_PREFIX + name.upper() for name in serve_options or ()}
        known = own | serve | set(_READ_ELSEWHERE)
        for name, value in sorted(environ.items()):
            if not name.startswith(_PREFIX) or name in known:
                continue
            if is_service_link(name, value):
                log.debug("%s is a Kubernetes service link: ignored", name)
            elif serve or not name.startswith(SERVE_PREFIX):
                log.warning("%s (this environment variable is ignored)", _unknown(name, known))
        home = environ.get("NIGHTINGALE_HOME", "~/.nightingale")
        return cls(Path(home).expanduser(), environ.get("NIGHTINGALE_API_KEY") or None)


def secrets_in(environ: Iterable[str]) -> list[str]:
    """Names of variables that hold keys, tokens or passwords: no child process needs them."""
    return [name for name in environ if _SECRET.search(name.upper())]


def is_service_link(name: str, value: str) -> bool:
    """Set by Kubernetes for a Service with our name: an address of it, and not for us."""
    if not name.startswith(_PREFIX):
        return False
    is_url = name.endswith("_PORT") and _LINK_URL.fullmatch(value) is not None
    return is_url or _SERVICE_LINK.fullmatch(name) is not None


def _unknown(name: str, known: Iterable[str]) -> str:
    """What to say about a variable that nobody reads, with the one that may have been meant."""
    rests = {candidate.removeprefix(_PREFIX): candidate for candidate in known}
    rest = name.removeprefix(_PREFIX)
    close = difflib.get_close_matches(rest, rests, n=1, cutoff=0.6)
    if f"SERVE_{rest}" in rests:  # NIGHTINGALE_PORT=8004
        close = [f"SERVE_{rest}"]
    if close:
        return f"{name} is not known; did you mean {rests[close[0]]}?"
    return f"{name} is not known"
