"""One loop for every network that is trained here: resumes, shows its progress, draws its losses.

A step draws its own batch by its number, so a run that was cut short goes on as if it had not been.
Under torchrun, processes draw batches of their own and share their gradients' mean; the first one
keeps the checkpoints. Knows nothing of speech.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

Losses = dict[str, Tensor]  # the first one is what is minimised
MAX_SKIPPED = 20  # steps in a row without finite gradients


@dataclass(frozen=True, slots=True)
class Schedule:
    """Optimizer steps, learning rate and what goes with them."""

    n_steps: int
    lr: float = 1e-3
    warmup: int = 300
    min_lr: float = 0.02  # share of lr at the end of its cosine
    max_norm: float = 1.0  # of the gradients
    ema_decay: float = 0.999  # of the running mean of the weights, which is what is kept
    weight_decay: float = 0.01
    checkpoint_every: int = 500  # steps
    stop: int | None = None  # pause at this step; lr is that of the whole schedule
    bf16: bool = False

    def lr_at(self, step: int) -> float:
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(1, self.n_steps - self.warmup)
        cosine = (1 + math.cos(math.pi * done)) / 2
        return self.lr * (self.min_lr + (1 - self.min_lr) * cosine)


def train(
    net: nn.Module,
    losses: Callable[[int], Losses],
    schedule: Schedule,
    folder: Path,
    minutes: float | None = None,
) -> bool:
    """Go on from the last checkpoint; whether the schedule was completed.

    `net` ends with the exponential moving average (EMA) of its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    rank, n_processes = processes()
    optimizer = torch.optim.AdamW(
        net.parameters(),
        lr=schedule.lr,
        betas=(0.9, 0.98),
        weight_decay=schedule.weight_decay,
        fused=True,
    )
    mean = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    first = _resume(folder, net, optimizer, mean)
    until = None if minutes is None else time.monotonic() + 60 * minutes
    last = min(schedule.n_steps, schedule.stop or schedule.n_steps)
    step, n_skipped = first, 0
    columns = "{task.description}", BarColumn(), "{task.completed}/{task.total}"
    with (
        Progress(
            *columns, TimeRemainingColumn(), TextColumn("{task.fields[shown]}"), disable=rank > 0
        ) as bar,
        (folder / "losses.jsonl").open("a") as log,
    ):
        task = bar.add_task(folder.name, total=schedule.n_steps, completed=first, shown="")
        for step in range(first, last):
            for group in optimizer.param_groups:
                group["lr"] = schedule.lr_at(step)
            values = _step(net, losses, schedule, optimizer, step * n_processes + rank)
            n_skipped = 0 if values["norm"].isfinite() else n_skipped + 1
            if n_skipped == MAX_SKIPPED:
                raise ArithmeticError(
                    f"{n_skipped} steps in a row with gradients that are not finite"
                )
            _update_ema(mean, net, min(schedule.ema_decay, (1 + step) / (10 + step)))
            if step % 20 == 0 and rank == 0:
                shown = {name: round(float(value), 4) for name, value in values.items()}
                log.write(json.dumps({"step": step, **shown}) + "\n")
                log.flush()
                bar.update(
                    task, completed=step + 1, shown=" ".join(f"{k} {v}" for k, v in shown.items())
                )
            is_over = _any(until is not None and time.monotonic() > until)
            if rank == 0 and (
                (step + 1) % schedule.checkpoint_every == 0 or step + 1 == last or is_over
            ):
                _keep(folder, net, optimizer, mean, step + 1)
            if is_over:
                break
    if rank == 0:
        draw(folder)
    net.load_state_dict(mean)
    return step + 1 >= schedule.n_steps


def processes() -> tuple[int, int]:
    """The number of this process and how many there are; torchrun's are connected first."""
    if not dist.is_torchelastic_launched():
        return 0, 1
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    return dist.get_rank(), dist.get_world_size()


def _any(is_true: bool) -> bool:
    """In any process, so that all of them do the same."""
    if not dist.is_initialized():
        return is_true
    found = torch.tensor(float(is_true))
    dist.all_reduce(found)
    return bool(found)


def _share_gradients(net: nn.Module) -> None:
    """Their mean over all processes, in one message."""
    if not dist.is_initialized():
        return
    found = [p.grad for p in net.parameters() if p.grad is not None]
    flat = torch.cat([grad.flatten() for grad in found])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    parts = torch.split(flat, [grad.numel() for grad in found])
    for grad, part in zip(found, parts, strict=True):
        grad.copy_(part.view_as(grad))


def compile_blocks(blocks: Iterable[nn.Module]) -> None:
    """Compile blocks that take most of the time: a minute once, then 1.3 to 1.5 times as fast."""
    torch._dynamo.config.recompile_limit = 64
    for block in blocks:
        block.forward = torch.compile(block.forward, dynamic=True)


def load_ema(net: nn.Module, folder: Path) -> nn.Module:
    """The EMA of the weights, ready for inference."""
    net.load_state_dict(load_file(folder / "mean.safetensors"))
    return net.eval().requires_grad_(False)


def _step(
    net: nn.Module,
    losses: Callable[[int], Losses],
    schedule: Schedule,
    optimizer: torch.optim.Optimizer,
    step: int,
) -> Losses:
    torch.manual_seed(step)
    with torch.autocast("cpu", torch.bfloat16, enabled=schedule.bf16):
        values = losses(step)
    optimizer.zero_grad(set_to_none=True)
    torch.autograd.backward(next(iter(values.values())))
    _share_gradients(net)
    norm = nn.utils.clip_grad_norm_(net.parameters(), schedule.max_norm)
    if norm.isfinite():
        optimizer.step()
    return {name: value.detach() for name, value in values.items()} | {"norm": norm}


@torch.no_grad()
def _update_ema(mean: dict[str, Tensor], net: nn.Module, decay: float) -> None:
    state = net.state_dict()
    floating = [name for name, tensor in mean.items() if tensor.is_floating_point()]
    torch._foreach_lerp_([mean[n] for n in floating], [state[n] for n in floating], 1 - decay)


def _keep(
    folder: Path,
    net: nn.Module,
    optimizer: torch.optim.Optimizer,
    mean: dict[str, Tensor],
    step: int,
) -> None:
    state = {
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": step,
        "mean": mean,
    }
    torch.save(state, folder / "last.tmp")
    (folder / "last.tmp").rename(folder / "last.pt")
    save_file({k: v.contiguous() for k, v in mean.items()}, folder / "mean.safetensors")


def _resume(
    folder: Path, net: nn.Module, optimizer: torch.optim.Optimizer, mean: dict[str, Tensor]
) -> int:
    if not (folder / "last.pt").is_file():
        return 0
    state = torch.load(folder / "last.pt", weights_only=True)
    net.load_state_dict(state["net"])
    optimizer.load_state_dict(state["optimizer"])
    mean.update(state["mean"])
    return int(state["step"])


def draw(folder: Path) -> None:
    """The losses as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [json.loads(line) for line in (folder / "losses.jsonl").read_text().splitlines()]
    names = [name for name in rows[-1] if name != "step"]
    figure, axes = pyplot.subplots(1, len(names), figsize=(4 * len(names), 3), squeeze=False)
    for axis, name in zip(axes[0], names, strict=True):
        axis.plot([row["step"] for row in rows], [row.get(name) for row in rows], linewidth=0.7)
        axis.set_title(name)
        axis.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(folder / "losses.png", dpi=90)
    pyplot.close(figure)
