"""`nightingale quantize`: pack a model's weights once, so that it starts and speaks faster."""

from __future__ import annotations

import typer

from nightingale.cli.progress import working
from nightingale.cli.terminal import stderr
from nightingale.core import Plan
from nightingale.errors import OptionError
from nightingale.settings import Settings


def quantize(
    context: typer.Context,
    model: str | None = typer.Argument(None, help="Model name, or a folder with its files."),
    plan: str = typer.Option(
        "balanced", help="Plan: balanced or live (8 bits), fast or live-fast (4 bits)."
    ),
) -> None:
    """Pack a model's weights for a plan; `say --plan` then loads them faster."""
    settings: Settings = context.obj
    wanted = Plan.named(plan)
    if wanted.t3 not in ("int8", "int4"):
        raise OptionError(f"plan {plan} packs nothing; choose balanced or fast")
    console = stderr()

    from nightingale.loader import pack_t3

    with working(console, "packing the weights"):
        file = pack_t3(model, settings.home, wanted)
    console.print(f"{file}: {file.stat().st_size / 1e6:.1f} MB", soft_wrap=True)
