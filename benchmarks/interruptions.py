"""Interrupt `nightingale say -o FILE` at random moments, resume it, and compare the bytes.

Undisturbed runs come first, for the bytes and the duration. Then each trial is ended at a random
moment by SIGINT, SIGTERM or SIGKILL, its resumed run is ended once more, and the third one
finishes. The last line is JSON; the exit code is 1 if a byte differs or a run ended wrongly.

    python benchmarks/interruptions.py --moments 10
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

TEXT = (
    "The lighthouse stood at the end of the pier. Nobody in the village had seen its lamp for "
    "years. One evening in March it was lit again. Anna saw it from her window. She put on her "
    "coat and walked down to the sea. The wind was cold and smelled of salt. Behind the door "
    "somebody was singing. She knocked three times and waited. The song stopped at once. Then the "
    "old keeper opened the door and smiled."
)
SIGNALS = (signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
SOON_S = 10.0  # within which an interrupted process must be gone, even on a busy machine


@dataclass(frozen=True, slots=True)
class Ending:
    """How a process ended after a signal."""

    returncode: int
    stderr: str
    seconds: float  # between the signal and the end

    def complaint(self, number: int) -> str | None:
        """What was wrong with it; a process that had finished before is fine, too."""
        if self.returncode == 0 or (number == signal.SIGKILL and self.returncode == -number):
            return None
        if "Traceback" in self.stderr:
            return f"a traceback: {self.stderr[-2000:]}"
        if self.returncode not in (128 + number, -number):
            return f"exit code {self.returncode} after {signal.Signals(number).name}"
        if self.seconds > SOON_S:
            return f"{self.seconds:.1f} s from the signal to the end"
        return None


Say = Callable[..., list[str]]  # an output file and options -> the command


def command(file: Path, *more: str, text: str = TEXT) -> list[str]:
    """Speak the text into a file."""
    return [sys.executable, "-m", "nightingale", "say", text, "-o", str(file), *more]


def interrupt(arguments: Sequence[str], number: int, is_time: Callable[[], bool]) -> Ending:
    """Start a process, send it a signal when it is time, and wait for its end."""
    process = subprocess.Popen(
        arguments,
        stderr=subprocess.PIPE,
        text=True,
        # In the background Ctrl-C is ignored, and a child would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    while process.poll() is None and not is_time():
        time.sleep(0.005)
    sent = time.monotonic()
    process.send_signal(number)
    _, printed = process.communicate(timeout=600)
    return Ending(process.returncode, printed, time.monotonic() - sent)


def after(seconds: float) -> Callable[[], bool]:
    """It is time when so many seconds have passed."""
    due = time.monotonic() + seconds
    return lambda: time.monotonic() >= due


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def trial(file: Path, duration_s: float, rng: random.Random, say: Say) -> list[str]:
    """Two interruptions of one output file, then its end; what went wrong."""
    complaints: list[str] = []
    resume: list[str] = []
    for _ in range(2):
        number = rng.choice(SIGNALS)
        ending = interrupt(say(file, *resume), number, after(rng.uniform(0, duration_s)))
        if complaint := ending.complaint(number):
            complaints.append(complaint)
        resume = ["--resume"]
    done = subprocess.run(say(file, *resume), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        complaints.append(done.stderr)
    left = sorted(path.name for path in file.parent.iterdir() if path != file)
    if left:
        complaints.append(f"left behind: {left}")
    return complaints


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--moments", type=int, default=10, help="Trials, two signals each.")
    arguments.add_argument("--sentences", type=int, default=10, help="Length of the text.")
    arguments.add_argument("--seed", type=int, default=0)
    chosen = arguments.parse_args()
    say = partial(command, text=". ".join(TEXT.split(". ")[: chosen.sentences]))
    rng = random.Random(chosen.seed)
    kinds = {"whole": ("a.wav", []), "stream": ("b.mp3", ["--stream"])}
    bad: list[str] = []
    n_equal = 0
    with tempfile.TemporaryDirectory() as scratch:
        wanted, durations = {}, {}
        for kind, (name, more) in kinds.items():
            file = Path(scratch) / name
            started = time.monotonic()
            subprocess.run(say(file, *more), check=True, capture_output=True)
            durations[kind], wanted[kind] = time.monotonic() - started, digest(file)
        for number in range(chosen.moments):
            kind = sorted(kinds)[number % len(kinds)]
            name, more = kinds[kind]
            folder = Path(scratch) / str(number)
            folder.mkdir()
            complaints = trial(
                folder / name,
                durations[kind],
                rng,
                lambda file, *resume, more=more: say(file, *more, *resume),
            )
            is_equal = (folder / name).is_file() and digest(folder / name) == wanted[kind]
            n_equal += is_equal
            bad += [f"trial {number} ({kind}): {complaint}" for complaint in complaints]
            print(f"trial {number} ({kind}): {'equal' if is_equal else 'DIFFERENT'}", flush=True)
    print(json.dumps({"trials": chosen.moments, "equal": n_equal, "complaints": bad}))
    sys.exit(n_equal != chosen.moments or bool(bad))


if __name__ == "__main__":
    main()
