"""Credentials of the commands that are frameworks."""

from __future__ import annotations

from croupier.ctl.flags import Target
from croupier.sdk import Credentials


def framework_credentials(target: Target) -> Credentials:
    """Return the credentials of `target` for the SDK.

    Raises:
        InvalidRequest: if they cannot be used.
    """
    found = target.credentials().security
    return Credentials(found.ca, found.cert, found.key, found.name, found.token, found.token_file)
