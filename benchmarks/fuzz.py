"""Every route with made-up requests (schemathesis): no 5xx but "busy", nothing hangs.

Twice: by the schema as it is, and by one narrowed to what can be spoken, so that some get through.

    pip install schemathesis && python benchmarks/fuzz.py --model FOLDER --examples 300
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server.running import serving

NARROW: dict[str, Any] = {
    "input": {"type": "string", "minLength": 1, "maxLength": 12},
    "text": {"type": "string", "minLength": 1, "maxLength": 12},
    "model": {"enum": ["", "tts-1"]},
    "voice": {"enum": ["default", "alloy"]},
    "predefined_voice_id": {"enum": ["default", "S1"]},
    "voice_mode": {"enum": ["predefined"]},
    "response_format": {"enum": ["wav", "mp3", "opus", "pcm_8000"]},
    "output_format": {"enum": ["wav", "mp3", "flac"]},
    "sample_rate": {"enum": [8000, 24000, 48000]},
    "language": {"enum": ["en"]},
    "speed": {"type": "number", "minimum": 0.25, "maximum": 4},
    "speed_factor": {"type": "number", "minimum": 0.25, "maximum": 4},
    "seed": {"type": "integer", "minimum": -1, "maximum": 2**31},
    "max_tokens": {"type": "integer", "minimum": 1, "maximum": 24},
    "temperature": {"type": "number", "minimum": 0, "maximum": 10},
    "exaggeration": {"type": "number", "minimum": 0, "maximum": 10},
    "cfg_weight": {"type": "number", "minimum": 0, "maximum": 10},
    "repetition_penalty": {"type": "number", "minimum": 0.01, "maximum": 100},
    "min_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0, "maximum": 100},
}


def narrowed(schema: dict[str, Any]) -> dict[str, Any]:
    for kind in schema["components"]["schemas"].values():
        for name in kind.get("properties", {}).keys() & NARROW.keys():
            kind["properties"][name] = NARROW[name]
    for path in schema["paths"].values():
        for route in path.values():
            for parameter in route.get("parameters", []):
                parameter["schema"] = NARROW.get(parameter["name"], parameter["schema"])
    return schema


def fuzz(schema: Path, url: str, n_examples: int, seed: int) -> dict[str, Any]:
    command = [
        *(Path(sys.executable).parent / "schemathesis", "run", schema, "--url", url),
        *("-c", "not_a_server_error", "-n", n_examples, "--request-timeout", 60, "--seed", seed),
        *(
            "--phases",
            "coverage,fuzzing",
            "--no-shrink",
            "--continue-on-failure",
            "--max-failures",
            50,
        ),
    ]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=schema.parent
    )
    found = re.search(r"(\d[\d,]*) generated", done.stdout)
    told = {"cases": int(found[1].replace(",", "")) if found else 0, "ok": done.returncode == 0}
    return told if told["ok"] else {**told, "output": done.stdout[-4000:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a folder of its files")
    parser.add_argument("--examples", type=int, default=20, help="for each route and schema")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--decoder", help="of the server; meanflow takes 2 steps instead of 10")
    given = parser.parse_args()
    flags = ["--log-level", "warning"] + (["--decoder", given.decoder] if given.decoder else [])
    with (
        tempfile.TemporaryDirectory() as home,
        serving(given.model, Path(home), {}, *flags) as server,
    ):
        plain = httpx.get(f"{server.url}/openapi.json").json()
        told = {}
        for name, schema in (("plain", plain), ("narrow", narrowed(json.loads(json.dumps(plain))))):
            file = Path(home) / f"{name}.json"
            file.write_text(json.dumps(schema))
            told[name] = fuzz(file, server.url, given.examples, given.seed)
        told["worker_restarts"] = server.meter("worker_restarts_total")
        told["log"] = server.log.read_text()[-2000:]
    print(json.dumps(told))
    sys.exit(0 if told["plain"]["ok"] and told["narrow"]["ok"] else 1)


if __name__ == "__main__":
    main()
