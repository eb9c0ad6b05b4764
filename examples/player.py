"""Speak in a terminal, and show each word when it is heard.

python examples/player.py "The quick brown fox jumps over the lazy dog."
"""

from __future__ import annotations

import subprocess
import sys
import time

from nightingale import Nightingale, SpeechStream, encode

PLAYER = ("aplay", "-q", "-")  # or anything else that plays a WAV stream


def main(text: str, model: str | None = None) -> None:
    tts = Nightingale.load(model, plan="live")
    player = subprocess.Popen(PLAYER, stdin=subprocess.PIPE)
    assert player.stdin is not None
    speech = tts.stream(text)
    began, n_shown = None, 0
    for piece in encode((chunk.samples for chunk in speech), "wav"):
        player.stdin.write(piece)
        player.stdin.flush()
        began = began or time.monotonic()
        n_shown = show(speech, began, n_shown)
    player.stdin.close()
    while began and n_shown < len(speech.words):
        n_shown = show(speech, began, n_shown)
        time.sleep(0.02)
    player.wait()
    print()


def show(speech: SpeechStream, began: float, n_shown: int) -> int:
    """Print the words that should have been heard by now; returns how many were printed."""
    heard_s = time.monotonic() - began
    due = [word for word in speech.words if word.start_s <= heard_s]
    for word in due[n_shown:]:
        print(word.text, end=" ", flush=True)
    return len(due)


if __name__ == "__main__":
    main(*sys.argv[1:])
