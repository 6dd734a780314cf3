"""Asking the user before something that cannot be undone."""

from __future__ import annotations

import sys

from croupier.model.errors import InvalidRequest


def confirmed() -> bool:
    """Ask on the terminal; True if the answer is yes.

    Raises:
        InvalidRequest: if standard input is no terminal.
    """
    if not sys.stdin.isatty():
        raise InvalidRequest("cannot ask for confirmation here, as stdin is no terminal: say --yes")
    print("type yes to go on: ", end="", flush=True)
    return sys.stdin.readline().strip().lower() == "yes"
