"""`python -m nightingale` and the `nightingale` command."""

import sys


def main() -> None:
    """Run the command; Ctrl-C is no traceback, not even while it is being imported."""
    try:
        from nightingale.cli import app  # noqa: PLC0415

        app()
    except KeyboardInterrupt:
        sys.stderr.write("Interrupted.\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
