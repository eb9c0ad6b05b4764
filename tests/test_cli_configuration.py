"""Options of `serve` from flags, the environment and a TOML file: in this order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from nightingale.cli.configuration import ConfiguredCommand, read_config

app = typer.Typer()


@app.callback()
def main() -> None:
    """A group, as the real command is one."""


@app.command(cls=ConfiguredCommand, context_settings={"auto_envvar_prefix": "BIRD_SERVE"})
def serve(
    config: Path | None = typer.Option(None, is_eager=True, callback=read_config),  # noqa: B008
    port: int = typer.Option(8004, min=0, max=65535),
    stall: float = typer.Option(60.0),
    model: str | None = typer.Option(None),
    keys: Path | None = typer.Option(None),  # noqa: B008
    watermark: bool = typer.Option(True),
    origin: list[str] = typer.Option([]),  # noqa: B008
) -> None:
    typer.echo(f"{port} {stall} {model} {keys} {watermark} {list(origin)}")


def run(*arguments: str, **environ: str) -> Any:
    return CliRunner().invoke(app, ["serve", *arguments], env=environ)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "serve.toml"


def test_a_flag_goes_before_the_environment_and_that_before_the_file(file: Path) -> None:
    file.write_text('port = 1\nstall = 5\nmodel = "nano"\nwatermark = false\norigin = ["a", "b"]\n')
    from_file = ["--config", str(file)]
    assert run().output == "8004 60.0 None None True []\n"
    assert run(*from_file).output == "1 5.0 nano None False ['a', 'b']\n"
    assert run(BIRD_SERVE_CONFIG=str(file)).output == "1 5.0 nano None False ['a', 'b']\n"
    environ = {"BIRD_SERVE_PORT": "2", "BIRD_SERVE_WATERMARK": "1", "BIRD_SERVE_ORIGIN": "c d"}
    assert run(*from_file, **environ).output == "2 5.0 nano None True ['c', 'd']\n"
    assert run(*from_file, "--port", "3", **environ).output.startswith("3 5.0")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("prot = 1", "prot is not known; did you mean port?"),
        ("zzz = 1", "zzz is not known; known are keys, model, origin, port, stall, watermark"),
        ('config = "other.toml"', "config is not known"),
        ('port = "1"', "port is '1', but must be an integer"),
        ("port = true", "port is True, but must be an integer"),
        ("watermark = 1", "watermark is 1, but must be true or false"),
        ("keys = 7", "keys is 7, but must be a string"),
        ("origin = [1]", "origin is [1], but must be a list of strings"),
        ("port = 70000", "'--port'"),
        ("[serve]\nport = 1", "serve is not known"),
        ("port", "is not a TOML file"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_that_names_it(
    file: Path, text: str | None, complaint: str
) -> None:
    if text is not None:
        file.write_text(text)
    done = run("--config", str(file))
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert complaint in done.output
    assert file.name in done.output


@pytest.mark.parametrize("value", ["80000", "-1", "many"])
def test_values_of_the_environment_are_checked_as_flags_are(value: str) -> None:
    done = run(BIRD_SERVE_PORT=value)
    assert done.exit_code == 2
    assert done.output.count("\n") == 1
    assert "(from BIRD_SERVE_PORT)" in done.output
