"""Whether a device computes what it should: the bundled model says a stored sentence there.

A program of its own, `python -m nightingale.measure.self_test torch cuda`, because a kernel that
goes wrong can end the process. Prints nothing if all is well, else what is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nightingale import backends
from nightingale.audio.mel import flow_mel
from nightingale.core import N_SLOTS, Plan
from nightingale.errors import NightingaleError
from nightingale.pipeline import Nightingale

GOLDEN = Path(__file__).with_name("self_test.json")
SPARE_TOKENS = 8  # behind the stored ones: what goes on for longer is wrong already
MAX_MEL = 0.05  # nepers, of a band or a frame on average; TF32 changes a hundredth of that


PLANS = (Plan(), Plan(slots=N_SLOTS))  # one by one; and as `auto` does, off the CPU


def speak(
    backend: str, device: str, plan: Plan = PLANS[0]
) -> tuple[list[int], NDArray[np.float64], NDArray[np.float64]]:
    """Tokens, and the mel by band and by frame, of the stored sentence."""
    golden: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    tts = Nightingale.load(
        "fledgling", backend=backend, device=device, decoder="meanflow", plan=plan, watermark=False
    )
    n_tokens = len(golden["tokens"]) + SPARE_TOKENS
    audio = tts.say(golden["text"], seed=golden["seed"], max_tokens=n_tokens)
    mel = flow_mel(torch.from_numpy(audio.samples)).numpy().astype(np.float64)  # (M, 80)
    return list(audio.tokens), mel.mean(0), mel.mean(1)


def difference(backend: str, device: str) -> str:
    """What is not as stored; empty: nothing."""
    plans = {backends.find(backend).resolve(plan, device).plan for plan in PLANS}
    faults = (_difference(backend, device, plan) for plan in sorted(plans, key=lambda it: it.slots))
    return next(filter(None, faults), "")


def _difference(backend: str, device: str, plan: Plan) -> str:
    golden: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    tokens, bands, frames = speak(backend, device, plan)
    if tokens != golden["tokens"]:
        pairs = zip(tokens, golden["tokens"], strict=False)
        n_same = next((at for at, (made, wanted) in enumerate(pairs) if made != wanted), 0)
        return f"speech token {n_same + 1} is wrong" + " with slots" * bool(plan.slots)
    for name, made in (("bands", bands), ("frames", frames)):
        apart = float(np.abs(made - np.array(golden[name])).max())
        if not apart <= MAX_MEL:  # NaN fails this too
            return f"the mel is {apart:.2g} nepers off, more than {MAX_MEL}"
    return ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="nightingale.measure.self_test", description=__doc__)
    parser.add_argument("backend")
    parser.add_argument("device")
    parser.add_argument("--write", action="store_true", help="store what is said as golden")
    given = parser.parse_args()
    if given.write:
        stored = json.loads(GOLDEN.read_text(encoding="utf-8"))
        tokens, bands, frames = speak(given.backend, given.device)
        means = {"bands": bands.round(3).tolist(), "frames": frames.round(3).tolist()}
        GOLDEN.write_text(json.dumps({**stored, "tokens": tokens, **means}) + "\n")
        return
    try:
        sys.stdout.write(difference(given.backend, given.device))
    except NightingaleError as error:
        sys.stdout.write(str(error))


if __name__ == "__main__":
    main()
