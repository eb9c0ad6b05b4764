"""A browser opens the page, types, hears and makes a voice; `SCREENSHOTS=1` keeps a picture."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright

from tests.server.conftest import Subject
from tests.server.running import Server

DOCS = Path(__file__).parents[2] / "docs"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--autoplay-policy=no-user-gesture-required", "--no-sandbox", "--disable-gpu"]
TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture
def page(server: Server, subject: Subject, tmp_path: Path) -> Iterator[Any]:
    if subject.options:
        pytest.skip("the page has no way to bound a model that never ends")
    assert CHROMIUM is not None, "there is no chromium here: run scripts/programs"
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        # Waiting for a condition is done by evaluating text, which the page itself may not.
        opened: Any = browser.new_page(bypass_csp=True, viewport={"width": 900, "height": 820})
        opened.mistakes = []
        opened.on("pageerror", lambda error: opened.mistakes.append(str(error)))
        opened.on("request", lambda request: _check(request, server.url))
        opened.goto(server.url)
        opened.wait_for_function("document.body.dataset.state === 'quiet'")
        yield opened
        assert opened.mistakes == []
        browser.close()


def _check(request: Any, url: str) -> None:
    at_home = (url, url.replace("http", "ws", 1), "data:")
    assert request.url.startswith(at_home), f"{request.url} is elsewhere"


def _keep(page: Any) -> None:
    if os.environ.get("SCREENSHOTS"):
        page.screenshot(path=DOCS / "page.png")


def test_it_is_typed_heard_and_seen(page: Any) -> None:
    page.fill("#text", TEXT)
    page.click("#speak")
    page.wait_for_function("Number(document.body.dataset.heard) > 1.0", timeout=60_000)
    assert 0 < float(page.evaluate("document.body.dataset.firstMs")) < 10_000
    assert "ms" in page.inner_text("#first")
    ink = """id => document.getElementById(id).getContext("2d").getImageData(0, 0, 1200, 100).data
             .some((value, at) => at % 4 === 3 && value > 0)"""
    assert page.evaluate(ink, "wave")
    assert page.evaluate(ink, "mel")
    assert page.locator("#said .now").count() == 1
    _keep(page)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    heard = float(page.evaluate("document.body.dataset.heard"))
    assert heard >= float(page.evaluate("document.body.dataset.seconds")) - 0.1


def test_unspoken_characters_are_listed_and_the_right_word_is_marked(page: Any) -> None:
    page.fill("#text", "Hello 🎉 🎉 world.")
    page.click("#speak")
    page.wait_for_function(
        "document.querySelector('#said :last-child').className === 'now'", timeout=60_000
    )
    assert page.inner_text("#said .past").strip() == "Hello"
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    assert page.inner_text("#message") == "Not spoken (unknown to this model): 🎉"
    page.fill("#text", "你好")
    page.click("#speak")
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    assert "nothing to say" in page.inner_text("#message")


def test_stop_says_where_it_stopped(page: Any) -> None:
    page.fill("#text", " ".join([TEXT] * 6))
    page.click("#speak")
    page.wait_for_function("Number(document.body.dataset.heard) > 0.6", timeout=60_000)
    page.click("#stop")
    page.wait_for_function("document.body.dataset.state === 'quiet'")
    assert "Stopped at" in page.inner_text("#message")


def test_a_clip_becomes_a_voice(page: Any, recording: Path, server: Server) -> None:
    page.set_input_files("#clip", recording)
    page.click("#make")
    assert "who agreed" in page.inner_text("#message")
    page.fill("#consent", "it is me")
    page.click("#make")
    page.wait_for_function("document.getElementById('voice').value === 'person'", timeout=60_000)
    assert "s of recording" in page.inner_text("#message")
    file = server.home / "voices/person.safetensors"
    assert b"it is me" in file.read_bytes()
    file.unlink()


def test_the_api_is_a_page(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    page.wait_for_selector("section")
    assert "/v1/audio/speech" in page.inner_text("#routes")
