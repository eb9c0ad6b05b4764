"""The `nightingale` command. Heavy imports live inside the commands, so that --help is quick.

The only file that reads the environment, and the only one that turns an error into an exit code.
"""

from __future__ import annotations

import os
from typing import Any

import typer
from typer.core import TyperGroup

from nightingale import __version__
from nightingale.cli.bench import bench
from nightingale.cli.configuration import ConfiguredCommand
from nightingale.cli.doctor import doctor
from nightingale.cli.fleet import fleet
from nightingale.cli.pull import pull
from nightingale.cli.quantize import quantize
from nightingale.cli.say import SayCommand, say
from nightingale.cli.serve import serve
from nightingale.cli.terminal import exit_code_of, stderr
from nightingale.cli.verify import verify
from nightingale.cli.voice import voices
from nightingale.errors import NightingaleError
from nightingale.settings import SERVE_PREFIX, Settings, is_service_link, secrets_in


class _Commands(TyperGroup):
    """All commands: what Nightingale raises on purpose is said in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NightingaleError as error:
            stderr().print(str(error), style="red")
            raise typer.Exit(1) from error
        except KeyboardInterrupt as interrupt:
            stderr().print(str(interrupt) or "Interrupted.")
            raise typer.Exit(exit_code_of(interrupt)) from None


app = typer.Typer(
    name="nightingale",
    help="Streaming text to speech for the Chatterbox family.",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command(cls=SayCommand)(say)
app.command(
    cls=ConfiguredCommand, context_settings={"auto_envvar_prefix": SERVE_PREFIX.rstrip("_")}
)(serve)
app.add_typer(fleet, name="fleet")
app.add_typer(voices, name="voice")
app.command()(pull)
app.command()(quantize)
app.command()(doctor)
app.command()(bench)
app.command()(verify)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nightingale {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Streaming text to speech for the Chatterbox family."""
    for name in [name for name in os.environ if is_service_link(name, os.environ[name])]:
        if name.startswith(SERVE_PREFIX):  # of a Service named nightingale-serve: not an option
            del os.environ[name]
    options = [option.name for option in context.command.commands["serve"].params]  # type: ignore[attr-defined]
    context.obj = Settings.read(os.environ, options)
    if context.invoked_subcommand == "serve":  # its worker and cloning processes inherit the rest
        for name in secrets_in(list(os.environ)):
            del os.environ[name]
