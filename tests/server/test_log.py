"""Log lines for programs and for people."""

from __future__ import annotations

import json
import logging
import re

from nightingale.server.log import JsonLines, RateLimit, TextLines


def record(**extra: object) -> logging.LogRecord:
    return logging.makeLogRecord(
        {"name": "nightingale.reply", "levelname": "INFO", "msg": "spoken", **extra}
    )


def test_a_line_for_people_has_time_level_event_and_fields() -> None:
    line = TextLines().format(record(seconds=1.5, reason='two words "x"', empty="", key="a\nb"))
    assert re.fullmatch(
        r'\d\d:\d\d:\d\d info spoken seconds=1\.5 reason="two words \\"x\\"" empty="" key="a\\nb"',
        line,
    )


def test_a_line_for_programs_is_json() -> None:
    line = json.loads(JsonLines().format(record(seconds=1.5)))
    assert (line["level"], line["event"], line["seconds"]) == ("info", "spoken", 1.5)


def test_the_message_of_an_exception_is_not_written() -> None:
    try:
        raise ValueError("a text that somebody wanted to hear")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
    for lines in (TextLines(), JsonLines()):
        line = lines.format(record(exc_info=info))
        assert "somebody" not in line
        assert "ValueError" in line
        assert "test_log.py:" in line


def test_a_flood_is_cut_and_counted() -> None:
    now = 0.0
    limit = RateLimit("nightingale.reply", n_per_s=10.0, clock=lambda: now)
    passed = [limit.filter(record()) for _ in range(250)]
    assert (sum(passed), all(passed[:10])) == (10, True)
    now = 0.2
    lines = [record() for _ in range(5)]
    assert [limit.filter(line) for line in lines] == [True, True, False, False, False]
    assert all(limit.filter(record(name="nightingale.other")) for _ in range(99))
    assert [line.__dict__.get("left_out") for line in lines[:2]] == [240, None]
