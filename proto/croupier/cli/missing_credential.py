"""What to say to users who have no credential."""

from __future__ import annotations

from croupier.cli.flags import Target
from croupier.net.credential_search import FoundCredentials, MissingCredential


def ways_to_give_one(found: FoundCredentials) -> str:
    """Return how to give a command a credential."""
    where = "" if found.file is None else f", or write {found.file}"
    return f"give --token-file or --tls-cert{where}"


def missing_credential(target: Target) -> MissingCredential:
    """Return what tells once that a command waits without a credential."""
    return MissingCredential(target.credentials, "start again with --token-file or --tls-cert")
