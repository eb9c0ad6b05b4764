"""Log lines as JSON: what happened to which request, never what was said or who said it."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message"}


class Lines(logging.Formatter):
    """One object a line; whatever is handed over as `extra` becomes a field."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "from": record.name,
            "event": record.getMessage(),
        }
        line |= {name: value for name, value in record.__dict__.items() if name not in _OWN}
        if record.exc_info and record.exc_info[0] is not None:
            # The message of a stranger's exception may hold a text; where it came from does not.
            line["error"] = record.exc_info[0].__name__
            trace = record.exc_info[2]
            while trace is not None:
                line["at"] = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
                trace = trace.tb_next
        return json.dumps(line, default=str)


def start(level: str) -> None:
    """All logging of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Lines())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
