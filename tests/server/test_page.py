"""A browser opens the page, types, hears and makes a voice; `SCREENSHOTS=1` keeps pictures."""

from __future__ import annotations

import os
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.browser import browsing
from tests.server.conftest import Subject
from tests.server.running import Server
from tests.server.test_websocket import calling

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.fixture
def page(server: Server, subject: Subject) -> Iterator[Any]:
    if subject.options:
        pytest.skip("the page has no way to bound a model that never ends")
    with browsing(server) as page:
        yield page


SIZES = [(width, scheme) for width in (360, 768, 1280) for scheme in ("light", "dark")]


def _speak(page: Any, text: str) -> None:
    page.fill("#text", text)
    page.click("#speak")
    page.wait_for_function("document.body.dataset.state === 'speaking'", timeout=60_000)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)


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
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    assert page.inner_text("#gaps") != "–"
    assert float(page.inner_text("#rtf")) > 0
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


def test_pronunciations_are_edited_and_tags_are_not_shown(page: Any, server: Server) -> None:
    page.click("#options summary")
    page.fill("#pronunciations", "fox = dog\n\nno term")
    with page.expect_websocket() as opened:
        _speak(page, "The fox. [pause:200ms]")
    assert page.inner_text("#said").split() == ["The", "fox."]
    assert opened.value.url.endswith("/v1/audio/speech/stream")
    seconds = float(page.evaluate("document.body.dataset.seconds"))
    with calling(server) as caller:
        caller.start(seed=0, pronunciations=[{"term": "fox", "replacement": "dog"}])
        caller.say("text", text="The fox. [pause:200ms]")
        caller.say("end")
        while caller.hear()["type"] != "done":
            pass
    assert seconds == pytest.approx(len(caller.sound[""]) / 48_000, abs=0.01)


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
    assert "permission" in page.inner_text("#message")
    page.fill("#consent", "it is me")
    page.click("#make")
    page.wait_for_function("document.getElementById('voice').value === 'person'", timeout=240_000)
    assert "s of recording" in page.inner_text("#message")
    file = server.home / "voices/person.safetensors"
    assert b"it is me" in file.read_bytes()
    file.unlink()


def test_speaking_by_keyboard_and_downloading(page: Any, server: Server, tmp_path: Path) -> None:
    assert page.locator("#download").is_disabled()
    page.fill("#text", " ")
    page.click("#speak")
    assert "Type something" in page.inner_text("#message")
    page.fill("#text", "Hello there.")
    page.keyboard.press("Control+Enter")
    page.wait_for_function("document.body.dataset.state === 'speaking'", timeout=60_000)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    with page.expect_download() as download:
        page.click("#download")
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "nightingale.wav"
    with wave.open(str(file)) as sound:
        assert sound.getframerate() == 24_000
        assert sound.readframes(sound.getnframes()) == server.speak("Hello there.")


def test_everything_is_reached_by_keyboard(page: Any) -> None:
    """In order, by Tab alone; what is disabled is left out."""
    page.focus("a")
    reached = []
    for _ in range(8):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id"))
    summary = ""  # of the options: it has no id
    assert reached == ["text", "voice", "sample", "speak", summary, "clip", "name", "consent"]
    assert page.locator("canvas[role=img][aria-label]").count() == 2


def test_languages_are_offered_if_there_are_several(page: Any) -> None:
    assert not page.is_visible("#language")
    listed = {"root": "multilingual", "plan": "live", "languages": ["en", "de", "zh"]}
    page.route("**/v1/models", lambda route: route.fulfill(json={"data": [listed]}))
    page.reload()
    page.wait_for_selector("#language")
    offered = ["English", "German", "Chinese", "Detect"]
    assert page.locator("#language option").all_inner_texts() == offered


def test_speed_is_a_slider_among_the_options(page: Any, server: Server) -> None:
    assert not page.is_visible("#speed")
    page.click("summary")
    page.focus("#speed")
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#shown-speed") == "1.25 ×"
    _speak(page, "Hello there.")
    takes = page.locator("#takes li")
    assert "speed 1.25" in takes.nth(0).inner_text()
    with page.expect_download() as download:
        takes.nth(0).locator("a").click()
    assert Path(download.value.path()).read_bytes()[44:] == server.speak("Hello there.", speed=1.25)
    page.fill("#speed", "2")
    takes.nth(0).locator("button").click()
    assert page.input_value("#speed") == "1.25"


def test_buttons_share_a_row_on_a_phone(page: Any) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    boxes = [page.locator(f"#{name}").bounding_box() for name in ("speak", "stop", "download")]
    assert len({box["y"] for box in boxes}) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_api_is_a_page(page: Any, server: Server) -> None:
    page.goto(f"{server.url}/docs")
    page.wait_for_selector("section")
    assert "/v1/audio/speech" in page.inner_text("#routes")


def test_takes_are_kept_with_a_player_that_seeks(page: Any, server: Server) -> None:
    assert not page.is_visible("#history")
    page.click("summary")
    page.fill("#seed", "3")
    page.click("#sample")
    page.wait_for_function("document.body.dataset.state === 'speaking'", timeout=60_000)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    page.fill("#seed", "4")
    _speak(page, "Hello there.")
    takes = page.locator("#takes li")
    assert takes.locator("p").all_inner_texts() == ["Hello there.", "Hello, this is how I sound."]
    audio = takes.nth(0).locator("audio")
    audio.evaluate("async (take) => { take.currentTime = 0.2; await take.play(); take.pause(); }")
    assert audio.evaluate("take => take.currentTime") >= 0.2
    with page.expect_download() as download:
        takes.nth(0).locator("a").click()
    sound = Path(download.value.path()).read_bytes()
    assert sound[44:] == server.speak("Hello there.", seed=4)
    takes.nth(1).locator("button").click()
    assert page.input_value("#text") == "Hello, this is how I sound."
    assert page.input_value("#seed") == "3"


def test_escape_stops(page: Any) -> None:
    page.fill("#text", " ".join([TEXT] * 6))
    page.keyboard.press("Control+Enter")
    page.wait_for_function("Number(document.body.dataset.heard) > 0.3", timeout=60_000)
    page.keyboard.press("Escape")
    page.wait_for_function("document.body.dataset.state === 'quiet'")
    assert "Stopped" in page.inner_text("#message")


def test_accessibility_and_width_at_six_sizes(page: Any) -> None:
    """axe-core finds nothing serious, light and dark; `SCREENSHOTS=1` keeps pictures."""
    page.click("summary")
    _speak(page, "Hello there.")
    for width, scheme in SIZES:
        page.set_viewport_size({"width": width, "height": 740 if width < 500 else 900})
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        assert serious(page) == [], (width, scheme)
    if os.environ.get("SCREENSHOTS"):
        _take_pictures(page)


def _take_pictures(page: Any) -> None:
    page.click("summary")
    page.click("#sample")
    page.wait_for_function("document.body.dataset.state === 'speaking'", timeout=60_000)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=60_000)
    _speak(page, "It talks while it thinks: the first words are heard before the last are made.")
    for width, scheme in SIZES:
        page.set_viewport_size({"width": width, "height": 740 if width < 500 else 900})
        page.emulate_media(color_scheme=scheme)
        file = DOCS / f"pictures/page-{width}-{scheme}.jpg"
        page.screenshot(path=file, full_page=True, type="jpeg", quality=70)


def test_the_waveform_is_drawn_again_when_the_colour_scheme_changes(page: Any) -> None:
    page.emulate_media(color_scheme="light")
    _speak(page, "Hello there.")
    pixels = """() => new Promise((done) => requestAnimationFrame(() => done(
        [...document.getElementById("wave").getContext("2d").getImageData(300, 60, 1, 1).data]
    )))"""
    light = page.evaluate(pixels)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(pixels)
    assert light[3] == dark[3] == 255
    assert light != dark


def test_planted_accessibility_faults_are_found(page: Any) -> None:
    page.evaluate("document.getElementById('text').removeAttribute('aria-label')")
    page.evaluate("document.getElementById('model').style.color = '#eee'")
    assert {"label", "color-contrast"} <= set(serious(page))


def serious(page: Any) -> list[str]:
    """Rules of axe-core that are broken, of the two upper degrees."""
    from axe_playwright_python.sync_playwright import Axe  # here alone, as in browser.py

    found = Axe().run(page).response["violations"]
    return [rule["id"] for rule in found if rule["impact"] in ("serious", "critical")]
