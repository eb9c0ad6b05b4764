"""What the commands share: a console for people, and how a command ends when it is interrupted."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

_TABLE_WIDTH = 120  # in a pipe: a row stays a line for the program that reads it


def stderr() -> Console:
    """For people: what a program reads goes to standard output."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


def print_table(console: Console, table: Any) -> None:
    """A table whose rows are not folded where there is no terminal."""
    console.print(table, width=None if console.is_terminal else _TABLE_WIDTH)


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM, with what there is to say about it."""

    def __init__(self, message: str, exit_code: int = 128 + signal.SIGINT) -> None:
        super().__init__(message)
        self.exit_code = exit_code

    @classmethod
    def of(cls, interrupt: KeyboardInterrupt, message: str) -> Interrupted:
        """The same interruption with a message."""
        return cls(message, exit_code_of(interrupt))


def exit_code_of(interrupt: KeyboardInterrupt) -> int:
    """As a shell counts: 130 for SIGINT, 143 for SIGTERM."""
    return interrupt.exit_code if isinstance(interrupt, Interrupted) else 128 + signal.SIGINT


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends the work as Ctrl-C does: what was made is kept, what is temporary is removed."""

    def stop(number: int, _frame: Any) -> None:
        raise Interrupted("Terminated.", 128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
