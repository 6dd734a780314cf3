"""What to say to users who have no credential."""

from __future__ import annotations

from croupier.ctl.flags import Target
from croupier.net.credential_search import NO_CREDENTIAL, FoundCredentials


def ways_to_give_one(found: FoundCredentials) -> str:
    """Return how to give a command a credential."""
    where = "" if found.file is None else f", or write {found.file}"
    return f"give --token-file or --tls-cert{where}"


class MissingCredential:
    """Tells once that a command waits without a credential; a cluster may not require one."""

    def __init__(self, target: Target) -> None:
        """Look for the credential that the command begins with."""
        self._found = target.credentials()
        self._is_told = self._found.text != NO_CREDENTIAL

    def advice(self) -> str:
        """Return what to append to the reason why no master can be reached; empty if nothing."""
        if self._is_told:
            return ""
        self._is_told = True
        ways = ways_to_give_one(self._found)
        return f"; no credential was found: if the cluster requires one, {ways}, and start again"
