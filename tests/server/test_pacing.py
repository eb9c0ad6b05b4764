"""What a listener notices, of a worker whose speed is given: gaps, and the first audible sample."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest

from nightingale.audio.audible import FirstAudible
from nightingale.core import SAMPLES_PER_SECOND
from tests.server.browser import TEXT, browsing, listen, repeating, set_factor
from tests.server.conftest import Subject
from tests.server.running import Server

pytestmark = pytest.mark.slow


FACTOR = 0.85


@pytest.fixture(scope="module")
def repeater(subject: Subject, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """It knows its speed, until a test changes it: the first ones here leave it as it is."""
    if subject.options:
        pytest.skip("random weights never end by themselves")
    with repeating(subject.folder, tmp_path_factory.mktemp("pacing"), FACTOR) as server:
        for _ in range(2):
            server.speak(TEXT)
        yield server


@pytest.fixture(scope="module")
def page(repeater: Server) -> Iterator[Any]:
    with browsing(repeater) as page:
        yield page


def hear(server: Server) -> tuple[float, float, float]:
    """First audible sample in ms: as a client notices it, by the header, and by the metric."""
    before = server.meter("first_audio_seconds_sum")
    listener, rest = FirstAudible(), b""
    with httpx.Client(timeout=60) as client:
        client.get(f"{server.url}/health/live")  # connected
        begun = time.monotonic()
        with client.stream(
            "POST", f"{server.url}/v1/audio/speech", json=server.body(TEXT)
        ) as reply:
            timing = reply.headers["server-timing"]
            for piece in reply.iter_raw():
                data = rest + piece
                whole = len(data) // 2 * 2
                samples = np.frombuffer(data[:whole], "<i2").astype(np.float32)
                listener.note(samples / np.float32(32768), time.monotonic() - begun)
                rest = data[whole:]
    assert listener.at_s is not None
    found = re.search(r"first-audio;dur=([\d.]+), prebuffer;dur=[\d.]+", timing)
    assert found is not None, timing
    after = server.meter("first_audio_seconds_sum")
    return 1e3 * listener.at_s, float(found[1]), 1e3 * (after - before)


def test_first_audio_is_what_a_client_notices(repeater: Server) -> None:
    """Within 20 ms; the best of some, for a busy machine is late with whatever it does."""
    errors = []
    for _ in range(4):
        true_ms, header_ms, metric_ms = hear(repeater)
        assert metric_ms == pytest.approx(header_ms, abs=0.2)
        errors.append(abs(true_ms - header_ms))
    assert min(errors) < 20, errors


def test_receipts_and_headers_report_the_speed(repeater: Server) -> None:
    reply = httpx.post(f"{repeater.url}/v1/audio/speech", json=repeater.body(TEXT), timeout=60)
    assert float(reply.headers["x-real-time-factor"]) == pytest.approx(FACTOR, abs=0.15)
    receipt = httpx.get(f"{repeater.url}/v1/requests/{reply.headers['x-request-id']}").json()
    assert receipt["gaps"] == receipt["gap_seconds"] == 0
    assert f"first-audio;dur={receipt['first_audio_ms']}" in reply.headers["server-timing"]
    assert receipt["real_time_factor"] == pytest.approx(FACTOR, abs=0.15)


def test_the_page_has_no_gap_below_real_time(page: Any) -> None:
    """And its first sound is the true one within 20 ms, in one of some runs: on a busy machine the
    browser's audio thread may be late with what the page has scheduled."""
    errors: list[float] = []
    while len(errors) < 2 or (min(errors) >= 20 and len(errors) < 4):
        run = listen(page)
        assert run["true_gaps"] == run["gaps"] == 0
        errors.append(abs(run["first_ms"] - run["true_first_ms"]))
    assert min(errors) < 20, errors


def test_the_page_buffers_above_real_time_and_says_so(repeater: Server, page: Any) -> None:
    """The text takes four seconds, and ten may be waited for."""
    set_factor(repeater.home, 1.5)
    page.fill("#text", TEXT)
    page.click("#speak")
    page.wait_for_function("document.body.dataset.state === 'buffering'", timeout=60_000)
    assert "Buffering" in page.inner_text("#message")
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    assert page.inner_text("#message") == ""
    assert page.inner_text("#gaps") == "0"


def test_too_slow_and_not_buffered_is_reported(repeater: Server) -> None:
    set_factor(repeater.home, 1.5)
    before = repeater.meter("underruns_total")
    body, begun = repeater.body(TEXT, prebuffer=False), time.monotonic()
    reply = httpx.post(f"{repeater.url}/v1/audio/speech", json=body, timeout=60)
    took_s = time.monotonic() - begun
    receipt = httpx.get(f"{repeater.url}/v1/requests/{reply.headers['x-request-id']}").json()
    assert receipt["gaps"] > 2
    made_s = receipt["samples"] / SAMPLES_PER_SECOND
    # Half as long as it sounds, but for the first chunk; longer where the machine is busy.
    assert 0.25 * made_s < receipt["gap_seconds"] < took_s - 0.5 * made_s
    assert repeater.meter("underruns_total") - before == receipt["gaps"]


def test_gaps_that_could_not_be_avoided_are_counted(repeater: Server, page: Any) -> None:
    """Believed to be fast, and then it is not; a busy machine is not always believed to be."""
    n_gaps = 0.0
    for _ in range(3):
        set_factor(repeater.home, 0.1)
        for _ in range(12):
            repeater.speak(TEXT, prebuffer=False)
        set_factor(repeater.home, 2.0)
        run = listen(page)
        assert run["gaps"] == run["true_gaps"]
        assert run["gap_s"] == pytest.approx(run["true_gap_s"], abs=0.05)
        assert page.inner_text("#gaps").startswith(str(run["gaps"]))
        n_gaps = max(n_gaps, run["gaps"])
        if n_gaps > 2:
            return
    pytest.fail(f"at most {n_gaps} gaps")
