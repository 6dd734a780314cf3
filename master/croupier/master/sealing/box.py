"""Seals secrets and opens them: AES-256-GCM with a random nonce for each value.

Rule: a sealed value opens only at its own place. Framework, task and name are associated data, so
a value that was copied to another task in the store does not open. Errors quote no values.

A random nonce of 96 bits is safe for 2^32 values under one key.
"""

from __future__ import annotations

import json
import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from croupier.master.sealing.keys import KeySource, SecretKey
from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.secrets import SealedValue, SecretValues
from croupier.model.task import TaskInfo

if TYPE_CHECKING:  # imported where it is used: only masters with secrets need it
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES: Final = 12
NO_KEY: Final = (
    "this master has no key for secrets; its operator sets one with --secrets-key-file or"
    " --secrets-key-command"
)


class Unopenable(CroupierError):
    """A sealed value that this master cannot open."""


@dataclass(frozen=True, slots=True)
class SecretPlace:
    """The place of a secret: a name of a task of a framework."""

    framework_id: FrameworkId
    task_id: TaskId
    name: str

    def data(self) -> bytes:
        """Return bytes that differ for different places."""
        return json.dumps(["croupier secret", self.framework_id, self.task_id, self.name]).encode()


class SecretBox(Protocol):
    """Seals values and opens them."""

    def seal(self, place: SecretPlace, value: str, /) -> SealedValue:
        """Seal one value.

        Raises:
            InvalidRequest: if there is no key.
        """
        ...

    def open(self, place: SecretPlace, sealed: SealedValue, /) -> str:
        """Return the plain value.

        Raises:
            Unopenable: if there is no key for it, or it was sealed for another place.
        """
        ...


class KeyBox:
    """A box with keys: the first seals, all open. Without keys it does neither."""

    def __init__(self, keys: KeySource = tuple) -> None:
        self._keys = keys

    def seal(self, place: SecretPlace, value: str) -> SealedValue:
        """Seal with the first key."""
        key = next(iter(self._keys()), None)
        if key is None:
            raise InvalidRequest(NO_KEY)
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = _cipher(key).encrypt(nonce, value.encode(), place.data())
        return SealedValue(key.key_id, b64encode(nonce + sealed).decode())

    def open(self, place: SecretPlace, sealed: SealedValue) -> str:
        """Open with the key that sealed the value."""
        from cryptography.exceptions import InvalidTag

        if not sealed.text:
            raise Unopenable(f"the value of the secret {place.name} is not stored")
        key = next((each for each in self._keys() if each.key_id == sealed.key_id), None)
        if key is None:
            raise Unopenable(
                f"the secret {place.name} was sealed with key {sealed.key_id[:16]!r}, which this"
                " master does not have"
            )
        try:
            content = b64decode(sealed.text, validate=True)
            nonce, rest = content[:NONCE_BYTES], content[NONCE_BYTES:]
            return _cipher(key).decrypt(nonce, rest, place.data()).decode()
        except (ValueError, InvalidTag):
            raise Unopenable(
                f"the sealed value of the secret {place.name} is damaged, or of another task"
            ) from None


def seal_task(
    box: SecretBox, framework_id: FrameworkId, task: TaskInfo, values: SecretValues
) -> TaskInfo:
    """Return the task with its secrets sealed.

    Raises:
        InvalidRequest: if there is no key.
    """
    sealed = {
        name: box.seal(SecretPlace(framework_id, task.task_id, name), value)
        for name, value in values.reveal().items()
    }
    return replace(task, command=replace(task.command, secrets=sealed))


def open_task(box: SecretBox, framework_id: FrameworkId, task: TaskInfo) -> SecretValues:
    """Return the plain values of a task's secrets.

    Raises:
        Unopenable: if one cannot be opened.
    """
    return SecretValues(
        {
            name: box.open(SecretPlace(framework_id, task.task_id, name), sealed)
            for name, sealed in task.command.secrets.items()
        }
    )


def _cipher(key: SecretKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.content)
