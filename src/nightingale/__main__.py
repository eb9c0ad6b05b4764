"""`python -m nightingale` is the `nightingale` command."""

from nightingale.cli import app

app()
