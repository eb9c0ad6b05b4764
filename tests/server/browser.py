"""A browser on the page, an instrument on its sound card, and a worker of any speed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nightingale
from tests.server.running import Server, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ["--autoplay-policy=no-user-gesture-required", "--no-sandbox", "--disable-gpu"]
TEXT = "The quick brown fox jumps over the lazy dog. Nobody saw it again."

# Found first by the Python of the worker. It speaks TEXT once and repeats it to everybody, chunk by
# chunk, as fast as the file `factor` says: seconds for a second of sound.
_REPEATER = """
import pathlib, sys, time

class Repeater:
    chunks, spoken, checkpoint = [], None, None

    @property
    def parts(self):
        return Repeater.spoken.parts if Repeater.spoken else []

    def __init__(self, model):
        self.left, self.is_cancelled, self.n_samples = None, False, 0
        if Repeater.spoken is None:
            Repeater.spoken = usual(model, TEXT)

    def step(self):
        if not Repeater.chunks:
            Repeater.chunks = list(Repeater.spoken)
        if self.left is None:
            self.left = list(Repeater.chunks)
        if self.is_cancelled or not self.left:
            raise StopIteration
        chunk = self.left.pop(0)
        factor = float(pathlib.Path(__file__).with_name("factor").read_text())
        time.sleep(factor * len(chunk.samples) / 24000)
        self.n_samples += len(chunk.samples)
        return chunk

    def cancel(self):
        self.is_cancelled = True

    def __getattr__(self, name):
        return getattr(Repeater.spoken, name)

if "nightingale.server.worker" in sys.orig_argv:
    from nightingale.pipeline import Nightingale
    usual = Nightingale.stream

    def stream(self, text, voice=None, **options):
        return usual(self, text, voice, **options) if options.get("max_tokens") else Repeater(self)

    Nightingale.stream = stream
"""

# What reaches the loudspeaker: a node of its own sees when the first audible sample is rendered,
# and the times for which sources are scheduled show the gaps between them.
_INSTRUMENT = """
const code = `registerProcessor("instrument", class extends AudioWorkletProcessor {
  process([input]) {
    const first = input[0]?.findIndex((x) => Math.abs(x) > 0.01) ?? -1;
    if (first >= 0 && !this.isAudible) this.port.postMessage(currentTime + first / sampleRate);
    this.isAudible ||= first >= 0;
    return true;
  }
})`;
const Usual = window.AudioContext, { connect } = AudioNode.prototype;
const { start } = AudioBufferSourceNode.prototype;
const heard = window.heard = { first: null, gaps: [], clicked: null, end: null };
window.AudioContext = class extends Usual {
  constructor(options) {
    super(options);
    const module = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
    this.isReady = this.audioWorklet.addModule(module).then(() => {
      this.instrument = new AudioWorkletNode(this, "instrument");
      connect.call(this.instrument, this.destination);
      this.instrument.port.onmessage = ({ data }) => {
        const { contextTime, performanceTime } = this.getOutputTimestamp();
        heard.first = performanceTime + 1e3 * (data - contextTime);
      };
    });
  }
  resume() { return this.isReady.then(() => super.resume()); } // nothing is played before
};
AudioNode.prototype.connect = function (to, ...more) {
  if (to === this.context.destination) connect.call(this, this.context.instrument);
  return connect.call(this, to, ...more);
};
AudioBufferSourceNode.prototype.start = function (when, ...more) {
  const at = Math.max(when, this.context.currentTime);
  if (heard.end !== null && at > heard.end + 1e-3) heard.gaps.push(at - heard.end);
  heard.end = at + this.buffer.duration;
  return start.call(this, when, ...more);
};
const note = ({ target }) => { if (target.id === "speak") heard.clicked = performance.now(); };
addEventListener("click", note, true);
"""


@contextmanager
def browsing(server: Server, *, width: int = 900, height: int = 830) -> Iterator[Any]:
    """The page, opened; whatever goes wrong in it is an error here."""
    assert CHROMIUM is not None, "there is no chromium here: run scripts/programs"
    from playwright.sync_api import sync_playwright  # here alone: most runs open no page

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        # Waiting for a condition is done by evaluating text, which the page itself may not.
        page: Any = browser.new_page(
            bypass_csp=True, viewport={"width": width, "height": height}, accept_downloads=True
        )
        mistakes: list[str] = []
        page.on("pageerror", lambda error: mistakes.append(str(error)))
        page.on("request", lambda request: _check(request, server.url))
        page.add_init_script(_INSTRUMENT)
        page.goto(server.url)
        page.wait_for_function("document.body.dataset.state === 'quiet'")
        yield page
        assert mistakes == []
        browser.close()


def _check(request: Any, url: str) -> None:
    at_home = (url, url.replace("http", "ws", 1), "data:", "blob:")
    assert request.url.startswith(at_home), f"{request.url} is elsewhere"


@contextmanager
def repeating(folder: Path, home: Path, factor: float, *flags: str) -> Iterator[Server]:
    """A server whose worker says TEXT to everybody, at a given real-time factor."""
    plant = home / "plant"
    plant.mkdir(parents=True)
    (plant / "sitecustomize.py").write_text(f"TEXT = {TEXT!r}\n{_REPEATER}")
    set_factor(home, factor)
    source = Path(nightingale.__file__).parents[1]
    with serving(folder, home, {}, *flags, PYTHONPATH=f"{plant}:{source}") as server:
        yield server


def set_factor(home: Path, factor: float) -> None:
    (home / "plant/factor").write_text(str(factor))


def listen(page: Any) -> dict[str, float]:
    """Speak TEXT from the click to the last sample: what the page reports, and what is true."""
    page.reload()
    page.wait_for_function("document.body.dataset.state === 'quiet'")
    page.fill("#text", TEXT)
    page.click("#speak")
    page.wait_for_function("document.body.dataset.state === 'speaking'", timeout=120_000)
    page.wait_for_function("document.body.dataset.state === 'quiet'", timeout=120_000)
    shown, heard = page.evaluate("[{...document.body.dataset}, window.heard]")
    gaps_s = heard["gaps"]
    return {
        "first_ms": float(shown["firstMs"]),
        "true_first_ms": heard["first"] - heard["clicked"],
        "gaps": int(shown.get("gaps", -1)),
        "gap_s": float(shown.get("gapSeconds", -1)),
        "true_gaps": len(gaps_s),
        "true_gap_s": sum(gaps_s),
    }
