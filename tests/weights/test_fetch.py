"""Pulling, against a real server on loopback."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError
from nightingale.weights.catalog import Model
from nightingale.weights.manifest import locate
from tests.weights.conftest import Machine, answer_of
from tests.weights.hub import COMMIT, Hub
from tests.weights.tiny import BRANCH, FILES, PINNED, T3, TOKENIZER


def spoiled(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


def blobs(machine: Machine) -> list[Path]:
    return list((machine.cache / "models--org--tiny" / "blobs").iterdir())


@pytest.mark.slow
def test_files_land_in_the_hubs_cache_and_are_found_there(hub: Hub, machine: Machine) -> None:
    answer = machine.pull(BRANCH)
    snapshot = machine.cache / "models--org--tiny" / "snapshots" / COMMIT
    assert answer == {
        "t3": str(snapshot / "t3.safetensors"),
        "tokenizer": str(snapshot / "tokenizer.json"),
    }
    found = locate(BRANCH, machine.home)
    assert found["t3"].read_bytes() == T3
    assert found["tokenizer"].read_bytes() == TOKENIZER
    assert hub.n_sent == len(T3) + len(TOKENIZER)


@pytest.mark.slow
def test_a_branch_is_resolved_once_so_that_commits_never_mix(hub: Hub, machine: Machine) -> None:
    machine.pull(BRANCH)
    asked = [request.path for request in hub.requests if "/resolve/main/" in request.path]
    assert asked == ["/org/tiny/resolve/main/t3.safetensors"]


@pytest.mark.slow
def test_a_second_pull_of_a_commit_asks_the_hub_nothing(hub: Hub, machine: Machine) -> None:
    first = machine.pull(PINNED)
    hub.requests.clear()
    assert machine.pull(PINNED) == first
    assert hub.requests == []


@pytest.mark.slow
def test_a_broken_connection_is_continued_where_it_broke(hub: Hub, machine: Machine) -> None:
    hub.cuts = [100_000, 0, 50_000]
    assert "t3" in machine.pull(BRANCH)
    assert locate(BRANCH, machine.home)["t3"].read_bytes() == T3
    ranges = [get.range for get in hub.gets if get.path.endswith("t3.safetensors")]
    assert ranges == [None, "bytes=100000-", "bytes=100000-", "bytes=150000-"]
    assert hub.n_sent == len(T3) + len(TOKENIZER)


@pytest.mark.slow
def test_a_file_that_lies_on_another_host_is_continued_there_without_the_token(
    hub: Hub, machine: Machine
) -> None:
    hub.redirects, hub.token, hub.cuts = True, "hf_secret", [100_000]
    machine.pull(BRANCH, HF_TOKEN="hf_secret")
    assert locate(BRANCH, machine.home)["t3"].read_bytes() == T3
    stored = [one for one in hub.requests if one.path.startswith("/store/")]
    assert [one.range for one in stored] == [None, "bytes=100000-"]
    assert {one.token for one in stored} == {None}


@pytest.mark.slow
def test_a_hub_that_sends_nothing_is_given_up_and_continued_later(
    hub: Hub, machine: Machine
) -> None:
    hub.cuts = [100_000, 0, 0, 0]
    answer = machine.pull(BRANCH)
    assert answer["error"] == "PullError"
    assert "pull again" in answer["message"]
    assert "t3" in machine.pull(BRANCH)
    assert hub.gets[-2].range == "bytes=100000-"
    assert hub.n_sent == len(T3) + len(TOKENIZER)


@pytest.mark.slow
def test_two_pulls_at_once_download_once(hub: Hub, machine: Machine) -> None:
    hub.stall_after = 100_000
    first = machine.start(PINNED)
    assert hub.stalled.wait(timeout=30)
    hub.requests.clear()
    second = machine.start(PINNED)
    while not any(request.path.endswith("t3.safetensors") for request in hub.requests):
        time.sleep(0.01)
    time.sleep(0.3)  # enough for it to download, if it dared
    hub.go_on.set()
    assert answer_of(first) == answer_of(second)
    assert hub.n_sent == len(T3) + len(TOKENIZER)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t3.safetensors", "tokenizer.json"])
def test_tampered_content_is_refused_by_name_and_a_later_pull_recovers(
    name: str, hub: Hub, machine: Machine
) -> None:
    hub.lies = {f"org/tiny/{name}": spoiled(hub.files[f"org/tiny/{name}"])}
    answer = machine.pull(BRANCH)
    assert answer["error"] == "CorruptFileError"
    assert name in answer["message"]
    assert all(blob.read_bytes() in (T3, TOKENIZER) for blob in blobs(machine))
    hub.lies = {}
    assert "t3" in machine.pull(BRANCH)


@pytest.mark.slow
def test_a_disk_without_links_holds_every_file_once_and_recovers_too(
    hub: Hub, machine: Machine
) -> None:
    hub.lies = {"org/tiny/t3.safetensors": spoiled(T3)}
    assert "t3.safetensors" in machine.pull(BRANCH, HF_HUB_DISABLE_SYMLINKS="1")["message"]
    hub.lies = {}
    file = Path(machine.pull(BRANCH, HF_HUB_DISABLE_SYMLINKS="1")["t3"])
    assert file.read_bytes() == T3
    assert not file.is_symlink()
    assert blobs(machine) == []


@pytest.mark.slow
def test_a_hub_that_agrees_with_its_own_forgery_is_caught_by_the_catalog(
    hub: Hub, machine: Machine
) -> None:
    hub.files["org/tiny/t3.safetensors"] = spoiled(T3)
    answer = machine.pull(PINNED)
    assert answer["error"] == "CorruptFileError"
    assert "t3.safetensors" in answer["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "content"),
    [(BRANCH, T3[:1000]), (PINNED, spoiled(T3))],
    ids=["truncated", "changed"],
)
def test_a_file_spoiled_on_disk_is_refused_by_name_and_replaced_by_a_pull(
    model: Model, content: bytes, machine: Machine
) -> None:
    file = Path(machine.pull(model)["t3"])
    file.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"t3\.safetensors.*nightingale pull"):
        locate(model, machine.home)
    machine.pull(model)
    assert locate(model, machine.home)["t3"].read_bytes() == T3


@pytest.mark.slow
@pytest.mark.parametrize("model", [BRANCH, PINNED], ids=lambda model: model.name)
def test_offline_works_with_what_is_here_and_says_so_when_it_is_not(
    model: Model, hub: Hub, machine: Machine
) -> None:
    answer = machine.pull(model, HF_HUB_OFFLINE="1")
    assert answer["error"] == "PullError"
    assert "HF_HUB_OFFLINE" in answer["message"]
    assert hub.requests == []
    machine.pull(model)
    hub.requests.clear()
    assert "t3" in machine.pull(model, HF_HUB_OFFLINE="1")
    assert hub.requests == []


@pytest.mark.slow
def test_the_token_is_sent_with_every_request_for_a_file(hub: Hub, machine: Machine) -> None:
    hub.token = "hf_secret"
    assert "HF_TOKEN" in machine.pull(BRANCH)["message"]
    hub.requests.clear()
    assert "t3" in machine.pull(BRANCH, HF_TOKEN="hf_secret")
    asked = [request for request in hub.requests if "/resolve/" in request.path]
    assert {request.token for request in asked} == {"hf_secret"}


@pytest.mark.slow
def test_every_failure_says_what_to_do(hub: Hub, machine: Machine) -> None:
    hub.gated = True
    assert "accept its terms" in machine.pull(BRANCH)["message"]
    hub.gated = False
    hub.sizes = {"org/tiny/t3.safetensors": 10**18}
    assert "make room" in machine.pull(BRANCH)["message"]
    hub.sizes = {}
    del hub.files["org/tiny/tokenizer.json"]
    assert "has no such file" in machine.pull(BRANCH)["message"]
    nowhere = replace(machine, endpoint="http://127.0.0.1:9")
    assert "cannot be reached" in nowhere.pull(PINNED)["message"]
    blocked = machine.folder / "a file"
    blocked.touch()
    assert "can be written" in machine.pull(BRANCH, HF_HOME=str(blocked))["message"]
    hub.files = dict(FILES)
    machine.home.touch()
    assert "NIGHTINGALE_HOME" in machine.pull(BRANCH)["message"]
