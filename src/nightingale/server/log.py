"""The log: what happened to which request, never what was said or who said it.

JSON lines for programs, plain lines for people.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Whatever was handed over as `extra`, and where an exception came from."""
    fields = {name: value for name, value in record.__dict__.items() if name not in _OWN}
    if record.exc_info and record.exc_info[0] is not None:
        # The message of a stranger's exception may hold a text; where it came from does not.
        fields["error"] = record.exc_info[0].__name__
        trace = record.exc_info[2]
        while trace is not None:
            fields["at"] = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
            trace = trace.tb_next
    return fields


class JsonLines(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        return json.dumps(line | _fields(record), default=str)


class TextLines(logging.Formatter):
    """`12:34:56 info spoken request=.. seconds=1.2`, in local time."""

    def format(self, record: logging.LogRecord) -> str:
        clock = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        fields = "".join(f" {name}={_shown(value)}" for name, value in _fields(record).items())
        return f"{clock} {record.levelname.lower()} {record.getMessage()}{fields}"


def _shown(value: Any) -> str:
    text = str(value)
    is_plain = text.isprintable() and text and not set(text) & set(' "=')
    return text if is_plain else json.dumps(text)


def start(level: str, format_: str = "auto") -> None:
    """All logging of this process to standard error; `auto` is text on a terminal, else JSON."""
    is_text = sys.stderr.isatty() if format_ == "auto" else format_ == "text"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextLines() if is_text else JsonLines())
    handler.addFilter(RateLimit("nightingale.access"))
    handler.addFilter(RateLimit("uvicorn"))  # has a line for each request that is not HTTP
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


class RateLimit(logging.Filter):
    """Of one logger, so many lines a second; the next one says how many were left out."""

    def __init__(
        self, name: str, n_per_s: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(name)
        self._n_per_s, self._clock = n_per_s, clock
        self._n_free, self._at = n_per_s, clock()
        self._n_left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not super().filter(record):
            return True
        now = self._clock()
        self._n_free = min(self._n_per_s, self._n_free + (now - self._at) * self._n_per_s)
        self._at = now
        if self._n_free < 1:
            self._n_left_out += 1
            return False
        self._n_free -= 1
        if self._n_left_out:
            record.left_out, self._n_left_out = self._n_left_out, 0
        return True
