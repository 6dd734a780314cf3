"""Credentials of the commands that are frameworks."""

from __future__ import annotations

from collections.abc import Callable

from croupier.cli.flags import Target
from croupier.sdk import Credentials


def framework_credentials(target: Target) -> Callable[[], Credentials]:
    """Return a function that looks up the credentials of `target` for the SDK."""

    def find() -> Credentials:
        found = target.security()
        files = (found.ca, found.cert, found.key)
        return Credentials(*files, found.name, found.token, found.token_file)

    return find
