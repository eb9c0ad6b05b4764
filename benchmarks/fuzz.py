"""Made-up requests beside an unrelated stream: no 5xx but "busy", nothing hangs, nobody waits.

    python benchmarks/fuzz.py routes --model FOLDER --examples 300     bodies, by the routes' schema
    python benchmarks/fuzz.py wire --model FOLDER --cases 20000        heads, sizes, frames, times

`routes` (pip install schemathesis) asks every route twice: by the schema as it is, and by one
narrowed to what can be spoken, so that some get through. `wire` writes raw bytes over HTTP,
WebSocket and Wyoming while somebody listens to a stream: its longest gap is compared with that
without any fuzzing, and its bytes have to be the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.listener import Listener
from benchmarks.raw_cases import Case, draw
from tests.server.running import Server, serving

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
    facts = {"cases": int(found[1].replace(",", "")) if found else 0, "ok": done.returncode == 0}
    return facts if facts["ok"] else {**facts, "output": done.stdout[-4000:]}


_ANSWER_S = 3.0  # that a case waits for an answer at most
_MAX_STALL_S = 1.0  # more than without fuzzing
_MAX_GROWTH_MB = 200.0
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


def is_fault(answer: bytes) -> bool:
    """A server error that is not "busy", in any of the three protocols."""
    status = _STATUS.match(answer)
    is_5xx = status is not None and status[1].startswith(b"5") and status[1] != b"503"
    return is_5xx or b'"code": "internal"' in answer


async def attempt(case: Case, port: int) -> bytes:
    """What is answered, as far as somebody looks."""
    answer = b""
    try:
        async with asyncio.timeout(_ANSWER_S + sum(pause for _, pause in case.pieces)):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                with suppress(ConnectionError):  # refused in the middle; it may say why
                    for data, pause in case.pieces:
                        writer.write(data)
                        await writer.drain()
                        await asyncio.sleep(pause)
                while case.reads and len(answer) < 2**20:
                    async with asyncio.timeout(0.5 if answer else _ANSWER_S):
                        data = await reader.read(2**16)
                    if not data:
                        break
                    answer += data
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        pass
    return answer


async def wire(server: Server, n_cases: int, seed: int, n_clients: int) -> dict[str, Any]:
    """Cases of a seed against a server, beside a stream."""
    http_port = httpx.URL(server.url).port or 0
    faults: list[str] = []
    kinds: dict[str, int] = {}
    numbers = iter(range(n_cases))

    async def client() -> None:
        for number in numbers:
            case = draw(seed, number)
            port = server.wyoming_port if case.protocol == "wyoming" else http_port
            answer = await attempt(case, port)
            status = _STATUS.match(answer)
            code = status[1].decode() if status else "answered" if answer else "closed"
            facts = f"{case.protocol} {code}"
            kinds[facts] = kinds.get(facts, 0) + 1
            if is_fault(answer):
                faults.append(f"case {number} of seed {seed}: {case.kind}: {answer[:200]!r}")

    with Listener(server) as listener:
        alone = await asyncio.to_thread(listener.measure, 2)
        before = listener.front_mb()
        listening = asyncio.create_task(asyncio.to_thread(listener.measure, 1, until_stopped=True))
        await asyncio.gather(*(client() for _ in range(n_clients)))
        listener.stop()
        beside = await listening
        after = listener.front_mb()
    stall_s = max(0.0, beside.gap_s - alone.gap_s, beside.probe_s - alone.probe_s)
    log = server.log.read_text().splitlines() if server.log.is_file() else []
    errors = [line for line in log if '"level": "error"' in line]
    facts = {
        "cases": n_cases,
        "faults": faults[:20],
        "answers": dict(sorted(kinds.items())),
        "alone": alone.facts,
        "beside": beside.facts,
        "stall_s": round(stall_s, 3),
        "same_bytes": alone.sums == beside.sums and len(alone.sums) == 1,
        "growth_mb": round(after - before, 1),
        "errors_in_log": errors[:20],
    }
    is_ok = not (faults or errors or alone.failures or beside.failures) and facts["same_bytes"]
    is_ok = is_ok and after - before < _MAX_GROWTH_MB
    return {"ok": bool(is_ok and stall_s <= _MAX_STALL_S), **facts}


def routes(server: Server, n_examples: int, seed: int) -> dict[str, Any]:
    """Every route with schemathesis."""
    plain = httpx.get(f"{server.url}/openapi.json").json()
    facts: dict[str, Any] = {}
    for name, schema in (("plain", plain), ("narrow", narrowed(json.loads(json.dumps(plain))))):
        file = server.home / f"{name}.json"
        file.write_text(json.dumps(schema))
        facts[name] = fuzz(file, server.url, n_examples, seed)
    return {"ok": facts["plain"]["ok"] and facts["narrow"]["ok"], **facts}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("routes", "wire"))
    parser.add_argument("--model", required=True, type=Path, help="a folder of its files")
    parser.add_argument("--examples", type=int, default=20, help="for each route and schema")
    parser.add_argument("--cases", type=int, default=2000, help="of raw bytes")
    parser.add_argument("--clients", type=int, default=16, help="at once")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as home,
        serving(given.model, Path(home), {}, "--log-level", "warning") as server,
    ):
        if given.what == "routes":
            facts = routes(server, given.examples, given.seed)
        else:
            facts = asyncio.run(wire(server, given.cases, given.seed, given.clients))
        facts["worker_restarts"] = server.meter("worker_restarts_total")
        if not facts["ok"]:
            facts["log"] = server.log.read_text()[-2000:]
    print(json.dumps(facts))
    sys.exit(0 if facts["ok"] else 1)


if __name__ == "__main__":
    main()
