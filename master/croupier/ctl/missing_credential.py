"""What to say to users who have no credential."""

from __future__ import annotations

from croupier.ctl.flags import Target
from croupier.net.credential_search import FoundCredentials


def ways_to_give_one(found: FoundCredentials) -> str:
    """Return how to give a command a credential."""
    where = "" if found.file is None else f", or write {found.file}"
    return f"give --token-file or --tls-cert{where}"


class MissingCredential:
    """Tells once that a command waits without a credential; a cluster may not require one."""

    def __init__(self, target: Target) -> None:
        self._target, self._is_told = target, False

    def advice(self) -> str:
        """Return what to append to the reason why no master can be reached; once, else nothing.

        Raises:
            InvalidRequest: if a credential is found that cannot be used.
        """
        is_told, self._is_told = self._is_told, True
        if is_told:
            return ""
        return self._target.credentials().advice("start again with --token-file or --tls-cert")
