"""Speaking rate: what the judges say of speech at other speeds, and where frames are interpolated.

    scripts/quality --fetch
    python -m benchmarks.speaking_rate judge --set choice --rows rows.jsonl   # until it says "all"
    python -m benchmarks.speaking_rate judge --set report --rows rows.jsonl
    python -m benchmarks.speaking_rate report --rows rows.jsonl --json benchmarks/results/speaking_rate.jsonl

Two places to interpolate: mel frames, between flow and vocoder (what ships, `speaking_rate.py`), and
features of the flow's encoder, before its solver. Fledgling says every sentence at speed 1 and at
another one, from the same speech tokens; Whisper writes it down (word error rate), DistillMOS rates
the sound, YIN compares the pitch with that at speed 1. The place is chosen on one set of sentences,
and what was chosen is reported on another. Every row is kept, so that a run goes on where it stopped; `--seconds` ends
it early.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.spoken_figures import sentences
from nightingale import Nightingale
from nightingale.backends.base import TokenRequest
from nightingale.backends.torch.flow.model import frame_noise
from nightingale.backends.torch.vocoder.model import fade_in
from nightingale.core import N_SPEECH_CODES, SAMPLES_PER_FRAME
from nightingale.measure import texts
from nightingale.measure.interval import bootstrap
from nightingale.measure.pitch import pitch_ratio
from nightingale.measure.sound import SoundJudge
from nightingale.measure.stages import TorchStages, torch_stages
from nightingale.measure.transcriber import Transcriber
from nightingale.measure.words import word_edits
from nightingale.speaking_rate import RateState, n_paced, pace_frames
from training.work import work

SPEEDS = (0.5, 0.8, 1.25, 2.0)
METHODS = ("mel", "encoder")
SETS = {
    "choice": [spelled for first in range(3) for _, spelled in sentences()[first::5]],
    "report": texts.read("held_out"),
}
Task = tuple[int, str, float]  # number of the sentence, method, speed


def tasks(name: str, n_rounds: int) -> Iterator[Task]:
    """Each sentence at speed 1, then at another speed in each round; some of them both ways."""
    numbers = range(len(SETS[name]))
    for number in numbers:
        yield number, "mel", 1.0
    for turn in range(n_rounds):
        for number in numbers:
            speed = SPEEDS[(number + turn) % len(SPEEDS)]
            yield number, "mel", speed
            if not turn and name == "choice":
                yield number, "encoder", speed


class Speaker:
    """Says sentences; the stages before the interpolation are computed once for each."""

    def __init__(self, seed: int) -> None:
        self._tts, self._seed = Nightingale.load("fledgling", plan="balanced"), seed
        self._stages: TorchStages = torch_stages(self._tts.components)
        self._voice = self._tts.components.voice.flow
        self._known: tuple[str, int] | None = None

    @torch.inference_mode()
    def say(self, text: str, number: int, method: str, speed: float) -> np.ndarray[Any, Any]:
        seed, flow = self._seed + number, self._stages.flow
        if self._known != (text, seed):
            self._codes = torch.tensor(self._tokens(text, seed))
            self._mel = flow.render(self._codes, self._voice, seed)
            self._known = text, seed
        if speed == 1.0:
            mel = self._mel
        elif method == "mel":
            mel = _paced(self._mel, speed)
        else:
            mel = self._from_features(speed, seed)
        return fade_in(self._stages.vocoder.vocode(mel, seed)).numpy()

    def _tokens(self, text: str, seed: int) -> list[int]:
        components = self._tts.components
        engine, tokens = components.loaded.token_engine, list[int]()
        options = self._tts.defaults.updated({"seed": seed})
        ids = components.tokenizer.encode(text, options.language)
        number, is_over = engine.add(TokenRequest(ids, components.voice.t3, options)), False
        while not is_over:
            (event,) = engine.step([number])
            is_over = event.is_last
            tokens.append(event.token)
        return [token for token in tokens if token < N_SPEECH_CODES]

    def _from_features(self, speed: float, seed: int) -> torch.Tensor:
        flow, n_prompt = self._stages.flow, len(self._voice.mel)
        mu = flow.encode(self._codes, self._voice)
        mu = torch.cat((mu[:n_prompt], _paced(mu[n_prompt:].T, speed).T))
        noise = frame_noise(seed, n_prompt, len(mu) - n_prompt, mu.shape[1])
        cond = flow.condition(self._voice, len(mu))
        *_, mel = flow.solve(mu, flow.speaker(self._voice), cond, noise)
        return mel[n_prompt:].T.contiguous()


def _paced(frames: torch.Tensor, speed: float) -> torch.Tensor:
    given, _ = pace_frames(frames.numpy(), RateState(speed), is_last=True)
    return torch.from_numpy(np.ascontiguousarray(given))


def judge(given: argparse.Namespace) -> int:
    until = time.monotonic() + given.seconds
    rows = _read(given.rows)
    done = {(row["set"], row["number"], row["method"], row["speed"]) for row in rows}
    left = [task for task in tasks(given.set, given.rounds) if (given.set, *task) not in done]
    if not left:
        print("all are judged")
        return 0
    torch.set_num_threads(1)
    speaker, judges = Speaker(given.seed), work() / "assets"
    transcriber, sound = Transcriber(judges, 1), SoundJudge(judges)
    with given.rows.open("a", encoding="utf-8") as file:
        for number, method, speed in left:
            text = SETS[given.set][number]
            clip = speaker.say(text, number, method, speed)
            plain = clip if speed == 1.0 else speaker.say(text, number, method, 1.0)
            heard = transcriber.transcribe(clip, 24_000)
            edits = word_edits(text, heard)
            n_frames = len(plain) // SAMPLES_PER_FRAME
            row = {
                "set": given.set, "number": number, "method": method, "speed": speed,
                "wrong": edits.total, "words": edits.n_reference, "heard": heard,
                "sound": round(sound.rate(clip, 24_000), 3),
                "pitch_ratio": pitch_ratio(clip, plain, 24_000, speed),
                "frames_off": abs(len(clip) / SAMPLES_PER_FRAME - n_frames / speed),
                "expected": n_paced(n_frames, speed) * SAMPLES_PER_FRAME == len(clip),
            }  # fmt: skip
            file.write(json.dumps(row) + "\n")
            file.flush()
            if time.monotonic() > until:
                break
    print(f"{len(left)} were left at the start; run it again")
    return 0


def _read(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    keys = ("set", "number", "method", "speed")
    return list({tuple(row[key] for key in keys): row for row in rows}.values())


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    pitches = np.array([row["pitch_ratio"] for row in rows if row["pitch_ratio"]])
    words = bootstrap([row["wrong"] for row in rows], [row["words"] for row in rows])
    sound = bootstrap([row["sound"] for row in rows])
    return {
        "utterances": len(rows),
        "words": sum(row["words"] for row in rows),
        "wrong": sum(row["wrong"] for row in rows),
        "word_error_rate": {name: round(100 * v, 1) for name, v in asdict(words).items()},
        "sound": {name: round(value, 3) for name, value in asdict(sound).items()},
        "pitch_ratio": {
            "median": round(float(np.median(pitches)), 4),
            "p5": round(float(np.percentile(pitches, 5)), 4),
            "p95": round(float(np.percentile(pitches, 95)), 4),
        },
        "max_frames_off": round(max(row["frames_off"] for row in rows), 3),
    }


def beside_speed_1(found: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How much higher the word error rate is than that of the same sentences at speed 1, paired."""
    plain = {(row["set"], row["number"]): row for row in rows if row["speed"] == 1.0}
    pairs = [(row, plain.get((row["set"], row["number"]))) for row in found]
    more = [(row["wrong"] - known["wrong"], row["words"]) for row, known in pairs if known]
    if not more:
        return {"sentences": 0}
    points = bootstrap(*map(list, zip(*more, strict=True)))
    return {
        "sentences": len(more),
        **{name: round(100 * v, 1) for name, v in asdict(points).items()},
    }


def report(given: argparse.Namespace) -> int:
    rows = _read(given.rows)
    result: dict[str, Any] = {}
    for name in SETS:
        for method in METHODS:
            for speed in (1.0, *SPEEDS, "all"):
                found = [
                    row for row in rows
                    if row["set"] == name and row["method"] == method
                    and (row["speed"] == speed or (speed == "all" and row["speed"] != 1.0))
                ]  # fmt: skip
                if found:
                    line = {**summary(found), "beside_speed_1": beside_speed_1(found, rows)}
                    result[f"{name} {method} {speed}"] = line
    for key, line in result.items():
        wer, sound, pitch = line["word_error_rate"], line["sound"], line["pitch_ratio"]
        print(f"{key:22} n={line['utterances']:4} "
              f"WER {wer['value']:5.1f} [{wer['low']}-{wer['high']}] "
              f"sound {sound['value']:.2f} [{sound['low']:.2f}-{sound['high']:.2f}] "
              f"pitch {pitch['median']:.4f} [{pitch['p5']:.3f}-{pitch['p95']:.3f}] "
              f"frames off {line['max_frames_off']} "
              f"beside speed 1 {line['beside_speed_1']}")  # fmt: skip
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    if given.json:
        command = "python -m benchmarks.speaking_rate report"
        kept = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "commit": commit,
                "command": command, "result": result}  # fmt: skip
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(kept) + "\n")
    shipped = [line for key, line in result.items() if key.startswith("report mel")]
    is_right = all(
        abs(line["pitch_ratio"]["median"] - 1) <= 0.02 and line["max_frames_off"] <= 1
        for line in shipped
    )
    return int(not (shipped and is_right))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(required=True)
    judging = commands.add_parser("judge")
    judging.add_argument("--set", choices=SETS, required=True)
    judging.add_argument("--rows", type=Path, required=True)
    judging.add_argument("--rounds", type=int, default=1, help="speeds for each sentence, up to 4")
    judging.add_argument("--seconds", type=float, default=240.0)
    judging.add_argument("--seed", type=int, default=0)
    judging.set_defaults(run=judge)
    reporting = commands.add_parser("report")
    reporting.add_argument("--rows", type=Path, required=True)
    reporting.add_argument("--json", type=Path)
    reporting.set_defaults(run=report)
    given = parser.parse_args()
    return int(given.run(given))


if __name__ == "__main__":
    sys.exit(main())
