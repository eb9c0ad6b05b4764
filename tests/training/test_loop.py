"""The training loop goes on where it was, and does not hide that it learns nothing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from training.loop import MAX_SKIPPED, Losses, Schedule, load_ema, train


def lesson(net: nn.Linear, wrong: bool = False) -> Losses:
    x = torch.randn(8, 3)
    loss = (net(x) - x.sum(1, keepdim=True)).square().mean()
    return {"loss": loss * float("nan") if wrong else loss}


def run(folder: Path, n_steps: int, *, of: int = 60) -> nn.Linear:
    torch.manual_seed(0)
    net = nn.Linear(3, 1)
    done = 0

    def losses(_step: int) -> Losses:
        nonlocal done
        done += 1
        if done > n_steps:
            raise KeyboardInterrupt
        return lesson(net)

    schedule = Schedule(of, lr=0.05, warmup=5, checkpoint_every=20, ema_decay=0.9)
    with contextlib.suppress(KeyboardInterrupt):
        train(net, losses, schedule, folder)
    return net


@pytest.mark.slow
def test_a_run_that_was_cut_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    run(tmp_path / "whole", 60)
    run(tmp_path / "cut", 45)
    run(tmp_path / "cut", 60)
    whole, cut = (load_ema(nn.Linear(3, 1), tmp_path / name) for name in ("whole", "cut"))
    assert torch.allclose(whole.weight, cut.weight)  # type: ignore[arg-type]
    assert (tmp_path / "whole" / "losses.png").is_file()


@pytest.mark.slow
def test_it_learns(tmp_path: Path) -> None:
    net = load_ema(run(tmp_path, 60), tmp_path)
    assert torch.allclose(net.weight, torch.ones(1, 3), atol=0.2)  # type: ignore[arg-type]


def test_gradients_that_are_no_numbers_stop_it(tmp_path: Path) -> None:
    net = nn.Linear(3, 1)
    with pytest.raises(ArithmeticError, match=f"{MAX_SKIPPED} steps"):
        train(net, lambda _step: lesson(net, wrong=True), Schedule(100), tmp_path)


@pytest.mark.slow
def test_it_leaves_off_where_it_should_and_the_rate_is_that_of_the_whole(tmp_path: Path) -> None:
    net = nn.Linear(3, 1)
    schedule = Schedule(60, warmup=5, stop=10)
    assert not train(net, lambda _step: lesson(net), schedule, tmp_path)
    assert torch.load(tmp_path / "last.pt", weights_only=True)["step"] == 10
    assert schedule.lr_at(10) == Schedule(60, warmup=5).lr_at(10)


TWO_PROCESSES = """
import sys
from pathlib import Path
import torch
from torch import nn
from tests.training.test_loop import drawn_by
from training.loop import Schedule, train
torch.manual_seed(0)
net = nn.Linear(3, 1)
train(net, lambda step: {"loss": drawn_by(net, step)}, Schedule(20, 0.05, 2), Path(sys.argv[1]))
"""


def drawn_by(net: nn.Linear, step: int) -> torch.Tensor:
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(step))
    loss: torch.Tensor = (net(x) - x.sum(1, keepdim=True)).square().mean()
    return loss


@pytest.mark.slow
def test_two_processes_learn_from_the_mean_of_their_batches(tmp_path: Path) -> None:
    script = tmp_path / "learn.py"
    script.write_text(TWO_PROCESSES)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*command, script, tmp_path / "two"], cwd=root, env={"PYTHONPATH": str(root)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-500:]
    torch.manual_seed(0)
    alone = nn.Linear(3, 1)
    train(
        alone,
        lambda step: {"loss": (drawn_by(alone, 2 * step) + drawn_by(alone, 2 * step + 1)) / 2},
        Schedule(20, 0.05, 2),
        tmp_path / "one",
    )
    one, two = (load_ema(nn.Linear(3, 1), tmp_path / name).weight for name in ("one", "two"))
    assert torch.allclose(one, two, atol=1e-6)  # type: ignore[arg-type]
