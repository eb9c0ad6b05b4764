"""A worker without a model: a real process that speaks the protocol, and fails when it is told to.

Its audio is a ramp: sample n is n. The text of a request is what it does with it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from nightingale.server.supervisor import WorkerConfig

N_CHUNK, N_CHUNKS = 2400, 6

SCRIPT = r"""
import json, os, signal, socket, struct, sys, time

address, status_fd, behaviour = sys.argv[1], int(sys.argv[2]), sys.argv[3]
folder = os.path.dirname(address)
N_CHUNK, N_CHUNKS = 2400, 6

def first(mark):
    try:
        os.close(os.open(os.path.join(folder, mark), os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

def report(status):
    os.write(status_fd, json.dumps(status).encode() + b"\n")

if behaviour == "cannot start" or (behaviour == "fails" and not first("started")):
    report({"error": "OptionError", "message": "the model is gone"})
    sys.exit(1)
listener = socket.socket(socket.AF_UNIX)
listener.bind(address)
listener.listen()
report({"listening": address})
if behaviour == "dies at once":
    sys.exit(1)
if behaviour == "no hello" and first("no hello"):
    time.sleep(60)
connection, _ = listener.accept()
stream = connection.makefile("rb")

def send(message, payload=b""):
    header = json.dumps(message).encode()
    connection.sendall(struct.pack("<II", len(header), len(payload)) + header + payload)

# "holds 2": as a device does whose memory has room for two requests.
max_requests = int(behaviour.split()[1]) if behaviour.startswith("holds") else None
send({"kind": "hello", "max_requests": max_requests, "pid": os.getpid(), "model": "ramp",
      "plan": "live", "languages": ["en"],
      "fingerprint": {"canary": behaviour, "protocol": 1 if behaviour == "older" else 3}})
while len(sizes := stream.read(8)) == 8:
    n_header, n_payload = struct.unpack("<II", sizes)
    message = json.loads(stream.read(n_header))
    stream.read(n_payload)
    if message["kind"] == "ping":
        send({"kind": "pong", "n_requests": 0, "step_s": 0.0, "n_bytes": 1})
    elif message["kind"] == "speak":
        text, number = "".join(message["text"]), message["id"]
        for n in range(N_CHUNKS):
            begin = n * N_CHUNK
            if begin >= message["n_skip"]:
                samples = struct.pack(f"<{N_CHUNK}f", *range(begin, begin + N_CHUNK))
                send({"kind": "audio", "id": number}, samples)
            if n == N_CHUNKS // 2 and "die" in text and first("died"):
                os._exit(1)
            if n == N_CHUNKS // 2 and "stop" in text and first("stopped"):
                os.kill(os.getpid(), signal.SIGSTOP)
            if n == N_CHUNKS // 2 and "nonsense" in text and first("nonsense"):
                send({"kind": "audio", "id": number}, b"odd")
        send({"kind": "end", "id": number, "n_samples": N_CHUNK * N_CHUNKS, "n_tokens": 1,
              "is_cancelled": False, "is_complete": True, "unsaid": [], "work_ms": 1.0})
"""


@dataclass(frozen=True, slots=True)
class Scripted(WorkerConfig):
    """How such a worker is started."""

    behaviour: str = "well"

    def command(self, address: str, status_fd: int = 1) -> list[str]:
        return [sys.executable, "-I", "-S", "-c", SCRIPT, address, str(status_fd), self.behaviour]


def recipe(folder: Path, behaviour: str = "well") -> Scripted:
    return Scripted(folder, behaviour=behaviour)
