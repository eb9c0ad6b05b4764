"""A page that speaks: one file, no framework. Open http://127.0.0.1:8000 and type.

    python examples/browser.py

It shows how little a stream needs; it is no server to leave running.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

from nightingale import Nightingale, encode

MAX_TEXT = 2000  # characters
PAGE = b"""<!doctype html><meta charset="utf-8"><title>Nightingale</title>
<form><input name="text" size="60" autofocus value="Hello there."> <button>Say</button></form>
<p id="when"></p>
<script>
document.querySelector("form").onsubmit = (event) => {
  event.preventDefault();
  const text = new FormData(event.target).get("text"), asked = performance.now();
  const sound = new Audio("/speech?text=" + encodeURIComponent(text));
  sound.onplaying = () => {
    when.textContent = `first sound after ${Math.round(performance.now() - asked)} ms`;
  };
  sound.play();
};
</script>"""


def handler(tts: Nightingale) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            text = parse_qs(asked.query).get("text", [""])[0].strip()
            if asked.path == "/":
                self._begin("text/html; charset=utf-8")
                self.wfile.write(PAGE)
            elif asked.path == "/speech" and 0 < len(text) <= MAX_TEXT:
                self._begin("audio/wav")
                self._speak(text)
            else:
                self.send_error(400, "ask for /speech?text=something")

        def _begin(self, content_type: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()

        def _speak(self, text: str) -> None:
            speech = tts.stream(text)
            try:
                for piece in encode((chunk.samples for chunk in speech), "wav"):
                    self.wfile.write(piece)
            except ConnectionError:
                speech.cancel()  # the page was closed

        def log_message(self, *_: object) -> None:
            """What people let it say is not logged."""

    return Handler


def main(model: str | None = None, port: int = 8000) -> None:
    tts = Nightingale.load(model, plan="live")
    with ThreadingHTTPServer(("127.0.0.1", port), handler(tts)) as server:
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:3]))
