"""Flags of a master for the secrets of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cyclopts import Parameter

from croupier.master.sealing.box import KeyBox
from croupier.master.sealing.keys import open_keys
from croupier.model.errors import InvalidRequest


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class SealingFlags:
    """Where a master gets its keys for secrets.

    Raises:
        InvalidRequest: if both places are given.
    """

    secrets_key_file: Path | None = None
    """File with the keys that encrypt the secrets of tasks: one a line, 32 bytes in base64; the
    first encrypts, all decrypt. Created if missing, except with etcd: there, all masters need the
    same keys. Without a key, tasks with secrets are refused."""

    secrets_key_command: str = ""
    """Command that prints the keys of --secrets-key-file, such as a client of a key management
    service. Runs once when the master starts, for at most 30s."""

    def __post_init__(self) -> None:
        if self.secrets_key_file and self.secrets_key_command:
            raise InvalidRequest("give one of --secrets-key-file and --secrets-key-command")

    def box(self, *, is_shared: bool) -> KeyBox:
        """Read the keys; a missing file is created, unless the store `is_shared` by masters.

        Raises:
            InvalidRequest: if they cannot be read.
        """
        keys = open_keys(self.secrets_key_file, self.secrets_key_command, is_shared=is_shared)
        return KeyBox(keys)
