"""The file of a fleet, and what decides how many replicas there are."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from nightingale.cli.fleet import with_replicas
from nightingale.errors import OptionError
from nightingale.fleet.config import IMPORT_PATH, FleetConfig, args_of, read
from nightingale.fleet.ingress import INGRESS
from nightingale.fleet.scaling import FULL_SLACK_S, wanted_replicas

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_file_of_the_fleet_is_the_one_that_kuberay_gets() -> None:
    given = read(DEPLOY / "fleet.yaml")
    service = yaml.safe_load((DEPLOY / "kuberay.yaml").read_text())
    assert yaml.safe_load(service["spec"]["serveConfigV2"]) == given
    config = FleetConfig.of(args_of(given))
    cluster = service["spec"]["rayClusterConfig"]
    pod = cluster["headGroupSpec"]["template"]["spec"]
    environ = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
    assert {name: environ.get(name) for name in INGRESS} == INGRESS
    assert pod["terminationGracePeriodSeconds"] > config.drain_s
    assert cluster["workerGroupSpecs"][0]["maxReplicas"] >= config.max_replicas


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ({"max_stream": 3}, "did you mean max_streams"),
        ({"max_streams": "3"}, "max_streams is '3', but must be int"),
        ({"watermark": 1}, "watermark is 1"),
        ({"threads": True}, "threads is True"),
        ({"min_replicas": 3, "max_replicas": 2}, "min_replicas is 3"),
    ],
)
def test_a_wrong_setting_is_named(args: dict[str, object], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        FleetConfig.of(args)


def test_a_file_with_unknown_fields_or_without_our_application_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "fleet.yaml"
    for text in ("- 1", "applications: []", f"app: [{{import_path: {IMPORT_PATH}}}]", "a: ["):
        file.write_text(text)
        with pytest.raises(OptionError):
            read(file)
    with pytest.raises(OptionError, match="cannot be read"):
        read(tmp_path / "none.yaml")


def test_replicas_of_the_command_line_are_fixed() -> None:
    assert with_replicas({"min_replicas": 1, "max_replicas": 9}, None)["max_replicas"] == 9
    fixed = with_replicas({"threads": 1}, 4)
    assert fixed == {"threads": 1, "min_replicas": 4, "max_replicas": 4}


@pytest.mark.parametrize(
    ("streams", "slacks_s", "n_now", "expected"),
    [
        ([], [], 0, 1),
        ([3, 3], [FULL_SLACK_S, 5.0], 2, 2),
        ([9, 8], [5.0, 5.0], 2, 5),
        ([1, 1], [5.0, 5.0], 4, 1),
        ([2, 2], [0.2, 5.0], 2, 3),  # somebody is about to hear a gap
    ],
)
def test_replicas_follow_live_streams_and_playback_slack(
    streams: list[float], slacks_s: list[float], n_now: int, expected: int
) -> None:
    n = wanted_replicas(streams, slacks_s, n_now, per_replica=4, min_slack_s=0.5)
    assert n == expected
