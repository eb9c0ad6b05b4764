"""What is under deploy/ agrees with the server: metrics of the dashboard, paths, ports, users."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from nightingale.server.breaker import BreakerState
from nightingale.server.dispatch import Dispatcher
from nightingale.server.metrics import Metrics

DEPLOY = Path(__file__).parents[1] / "deploy"
WORDS = re.compile(r"\b((?:nightingale|process)_\w+)")


def exported() -> dict[str, set[str]]:
    """Names of samples that /metrics has, and the labels of each."""
    breaker = SimpleNamespace(state=BreakerState.OPEN)
    supervisor = SimpleNamespace(is_ready=True, breaker=breaker, start_s=1.0, n_deaths=0)
    counts = dict.fromkeys(
        (
            "n_speaking",
            "n_waiting",
            "n_paused",
            "worker_bytes",
            "n_resumed",
            "n_moved",
            "n_rejected",
        ),
        0,
    )
    metrics = Metrics(cast(Dispatcher, SimpleNamespace(supervisor=supervisor, **counts)))
    families = text_string_to_metric_families(generate_latest(metrics.registry).decode())
    return {
        sample.name: set(sample.labels) for family in families for sample in family.samples
    }  # fmt: skip


def expressions() -> list[str]:
    board: Any = json.loads((DEPLOY / "compose/grafana/dashboard.json").read_text())
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def unknown(expression: str, known: dict[str, set[str]]) -> list[str]:
    """Metrics and labels of a query that the server does not export."""
    names = WORDS.findall(expression)
    labels = set(re.findall(r"by \((\w+)\)", expression))
    there = set().union(*(known.get(name, set()) for name in names))
    return [name for name in names if name not in known] + sorted(labels - there)


def test_every_query_of_the_dashboard_uses_metrics_that_are_exported() -> None:
    known = exported()
    assert len(expressions()) >= 10
    for expression in expressions():
        assert WORDS.search(expression), expression
        assert not unknown(expression, known), expression


def test_a_query_for_a_metric_or_label_that_is_not_exported_is_noticed() -> None:
    known = exported()
    assert unknown("sum(nightingale_underruns)", known) == ["nightingale_underruns"]
    assert unknown("sum by (code) (rate(nightingale_requests_total[5m]))", known) == ["code"]


def test_every_metric_of_ours_is_on_the_dashboard_but_for_the_rare() -> None:
    shown = {name for expression in expressions() for name in WORDS.findall(expression)}
    ours = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported()}
    ours = {name.removesuffix("_total") for name in ours if name.startswith("nightingale_")}
    shown = {re.sub(r"_(bucket|total)$", "", name) for name in shown}
    rare = {
        "nightingale_characters",
        "nightingale_moved",
        "nightingale_front_threads",
        "nightingale_worker_start_seconds",
    }
    assert ours - shown == rare


def test_containers_run_as_one_user_that_is_not_root_and_write_only_to_volumes() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text()
    assert "USER 10001" in dockerfile
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    assert compose["services"]["nightingale"]["read_only"] is True
    deployment = yaml.safe_load((DEPLOY / "kubernetes/deployment.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    grace = pod["terminationGracePeriodSeconds"]
    unit = (DEPLOY / "nightingale.service").read_text()
    assert f"TimeoutStopSec={grace}" in unit
    assert f"stop_grace_period: {grace}s" in (DEPLOY / "compose/compose.yaml").read_text()


def test_files_that_compose_mounts_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    mounts = [mount for service in compose["services"].values() for mount in service["volumes"]]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert len(files) == 4
    assert all((DEPLOY / "compose" / file).is_file() for file in files)


def test_volumes_and_services_that_compose_names_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
    services = compose["services"]
    mounts = [mount for service in services.values() for mount in service["volumes"]]
    named = {mount.split(":")[0] for mount in mounts if not mount.startswith("./")}
    assert named == set(compose["volumes"])
    assert {name for one in services.values() for name in one.get("depends_on", [])} <= set(
        services
    )


def can_boot() -> bool:
    """Whether a systemd can be started here in a container of its own."""
    spaces = ["unshare", "--mount", "--pid", "--cgroup", "--net", "--fork", "true"]
    if os.geteuid() != 0 or shutil.which("systemd-nspawn") is None:
        return False
    return subprocess.run(spaces, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not can_boot(), reason="needs root, namespaces and systemd-nspawn")
def test_systemd_starts_restarts_and_stops_the_unit(tmp_path: Path) -> None:
    """deploy/nightingale.service as it is, hardening and all; a unit without a program fails."""
    script = str(DEPLOY.parent / "scripts/systemd")
    done = subprocess.run([script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("bytes of WAV") == 2
    assert "stopped: success inactive" in done.stdout
    planted = tmp_path / "planted.service"
    unit = (DEPLOY / "nightingale.service").read_text()
    unit = unit.replace("bin/nightingale serve", "bin/absent").replace("on-failure", "no")
    planted.write_text(unit)
    failed = subprocess.run([script, str(planted)], capture_output=True, text=True, check=False)
    assert failed.returncode != 0
    assert "absent: No such file or directory" in failed.stdout
