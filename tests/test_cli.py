"""The command as a person meets it: another process, a pipe or a terminal, a hub on loopback."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from nightingale import __version__
from nightingale.weights.catalog import MODELS, find
from nightingale.weights.load import read_tensors
from nightingale.weights.manifest import locate
from tests.weights.conftest import Machine, hub, machine
from tests.weights.hub import Hub

__all__ = ["hub", "machine"]  # fixtures

NANO = "ResembleAI/chatterbox-nano"


def nano_files(folder: Path) -> dict[str, bytes]:
    """A hub's worth of Nano, each file as small as it gets, but for one that takes a while."""
    torch.save({"t3": {"speaker_emb": torch.ones(1, 256)}, "gen": {}}, folder / "conds.pt")
    content = {part.path: b"{}" for part in find("nano").parts}
    content["t3_nano_v1.safetensors"] = save({"weight": torch.zeros(50_000)})
    content["conds.pt"] = (folder / "conds.pt").read_bytes()
    return {f"{NANO}/{path}": body for path, body in content.items()}


def test_importing_nightingale_does_not_import_torch() -> None:
    code = "import nightingale, sys; nightingale.Options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_help_and_lists_import_neither_torch_nor_the_hub() -> None:
    """One process for all of them: what any of them imports stays imported."""
    code = (
        "import sys; from nightingale.cli import app\n"
        "for arguments in (['--help'], ['pull', '--help'], ['pull']):\n"
        "    try: app(arguments)\n"
        "    except SystemExit as end: assert end.code == 0, arguments\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(done.stderr.split())
    assert "typer" in imported
    assert imported.isdisjoint({"torch", "huggingface_hub", "safetensors", "numpy"})


@pytest.mark.slow
def test_version(machine: Machine) -> None:
    assert machine.nightingale("--version").stdout == f"nightingale {__version__}\n"


@pytest.mark.slow
def test_an_unknown_variable_is_a_warning_in_one_line(machine: Machine) -> None:
    done = machine.nightingale("pull", NIGHTINGALE_HOMME="/tmp", NIGHTINGALE_SERVE_PROT="1")
    assert done.returncode == 0
    assert "nano" in done.stdout
    assert [line.split(" (")[0] for line in done.stderr.splitlines()] == [
        "NIGHTINGALE_HOMME is not known; did you mean NIGHTINGALE_HOME?",
        "NIGHTINGALE_SERVE_PROT is not known; did you mean NIGHTINGALE_SERVE_PORT?",
    ]


@pytest.mark.slow
def test_kubernetes_service_links_are_ignored_silently(machine: Machine) -> None:
    links = {"NIGHTINGALE_PORT": "tcp://10.96.0.7:8004", "NIGHTINGALE_SERVICE_HOST": "10.96.0.7"}
    done = machine.nightingale("pull", **links)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_an_unknown_model_is_refused_in_one_sentence(machine: Machine) -> None:
    done = machine.nightingale("pull", "nana")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "'nana'" in done.stderr
    assert "nano" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["pull", "--list"],
        *(pytest.param(a, marks=pytest.mark.slow) for a in (["pull"], ["pull", "nano", "--list"])),
    ],
)
def test_the_list_names_every_model_and_asks_no_hub(
    arguments: list[str], hub: Hub, machine: Machine
) -> None:
    done = machine.nightingale(*arguments)
    here = {model.name: "yes" if model.is_bundled else "no" for model in MODELS}
    assert states(done.stdout) == here
    assert hub.requests == []


@pytest.mark.slow
def test_a_refused_file_is_one_sentence_and_a_failure(
    hub: Hub, machine: Machine, tmp_path: Path
) -> None:
    hub.files = nano_files(tmp_path)
    hub.lies = {f"{NANO}/t3_nano_v1.safetensors": b"x" * 200_088}
    done = machine.nightingale("pull", "nano")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "t3_nano_v1.safetensors" in done.stderr


@pytest.mark.slow
def test_a_stopped_pull_shows_its_bar_and_continues_at_the_next(
    hub: Hub, machine: Machine, tmp_path: Path
) -> None:
    hub.files = nano_files(tmp_path)
    hub.stall_after = 100_000
    shown = stop_on_terminal(hub, machine)
    assert "t3_nano_v1.safetensors" in shown
    assert "`nightingale pull nano` continues" in shown

    hub.stall_after = None
    done = machine.nightingale("pull", "nano")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    continued = re.fullmatch(r"bytes=(\d+)-", hub.gets[1].range or "")
    assert continued
    assert 0 < int(continued[1]) <= 100_000

    files = locate(find("nano"), machine.home)
    assert files["t3"].read_bytes() == hub.files[f"{NANO}/t3_nano_v1.safetensors"]
    assert json.loads(files["tokenizer.vocab"].read_text()) == {}
    assert read_tensors(files["voice"]).keys() == {"t3.speaker_emb"}
    assert states(machine.nightingale("pull", "--list").stdout)["nano"] == "yes"
    files["voice"].write_bytes(b"")
    assert states(machine.nightingale("pull", "--list").stdout)["nano"] == "damaged"


def states(table: str) -> dict[str, str]:
    """Which model is here, as the list has it."""
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[1:]]
    return {name: here for name, _, _, here, _ in rows}


def stop_on_terminal(hub: Hub, machine: Machine) -> str:
    """Pull Nano on a terminal, press Ctrl-C once the hub stalls, and return what was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nightingale", "pull", "nano"],
        env=machine.environ(TERM="xterm", COLUMNS="120"),
        stderr=theirs,
        # A test run in the background ignores Ctrl-C, and its children would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    os.close(theirs)
    assert hub.stalled.wait(timeout=30)
    shown = b""
    while b"t3_nano" not in shown:
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    while process.poll() is None or b"continues" not in shown:
        try:
            shown += os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert process.wait(timeout=30) == 130
    return shown.decode()
