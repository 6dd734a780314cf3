"""Encryption of tasks' secrets: sealed when an ACCEPT arrives, opened when a LAUNCH leaves.

A value is sealed by AES-256-GCM with a random nonce of 96 bits, which is safe for 2^32 values under
one key. It opens only at its own place: framework, task and name are associated data, so a value
that was copied to another task in the store does not open.

Keys come from a file or from a command. Both hold one key a line: 32 bytes in base64. Empty lines
and lines that begin with `#` do not count. The first key seals, and all open, so a new key is put
first and the old ones stay until no task waits that they sealed. A key's id is part of its hash: it
is the same on all masters.

Keys that cannot be read or made are an `InvalidRequest`. Errors quote neither values nor lines.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shlex
import stat
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from croupier.model.errors import CroupierError, InvalidRequest
from croupier.model.ids import FrameworkId, TaskId
from croupier.model.secrets import SealedValue, SecretValues
from croupier.model.task import TaskInfo
from croupier.process.durable_files import os_errors_as, sync_directory
from croupier.process.logging import get_logger

if TYPE_CHECKING:  # imported where it is used: only masters with secrets need it
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM


KEY_BYTES: Final = 32
MAX_KEYS: Final = 16
MAX_TEXT: Final = 64 * 1024
COMMAND_TIMEOUT_S: Final = 30.0
HOW_TO_MAKE: Final = "`openssl rand -base64 32` makes one"

_log = get_logger("croupier.master")

NONCE_BYTES: Final = 12
NO_KEY: Final = (
    "this master has no key for secrets; its operator sets one with --secrets-key-file or"
    " --secrets-key-command"
)


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of AES-256; `key_id` is the first 8 hex digits of a hash of it."""

    content: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """The name of the key in sealed values."""
        return hashlib.sha256(b"croupier secrets key" + self.content).hexdigest()[:8]


# The sealing one first.
Keys = tuple[SecretKey, ...]
KeySource = Callable[[], Keys]


def parse_keys(text: str, source: str) -> Keys:
    """Read one key from each line of `text`; errors name the `source`."""
    keys: dict[bytes, SecretKey] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        try:
            content = b64decode(stripped, validate=True)
        except ValueError:
            content = b""
        if len(content) != KEY_BYTES:
            raise InvalidRequest(
                f"{source}: line {number} is not a key of {KEY_BYTES} bytes in base64;"
                f" {HOW_TO_MAKE}"
            )
        keys[content] = SecretKey(content)
    if not 1 <= len(keys) <= MAX_KEYS:
        raise InvalidRequest(f"{source} has {len(keys)} keys; it must have 1 to {MAX_KEYS}")
    return tuple(keys.values())


class KeyFile:
    """Keys in a file, which is read again when it changes."""

    def __init__(self, path: Path) -> None:
        """Read the file; raises InvalidRequest if it is unreadable, or others can read it."""
        self.path = path
        self._version, self._keys = _read(path)
        self._problem = ""

    def __call__(self) -> Keys:
        """Return the keys; those read last while the file cannot be read."""
        problem = ""
        try:
            if _version(self.path.stat()) != self._version:
                self._version, self._keys = _read(self.path)
                _log.info("secrets_keys_read", keys=[key.key_id for key in self._keys])
        except InvalidRequest as error:
            problem = str(error)
        except OSError as error:
            problem = f"cannot read {self.path}: {error.strerror}"
        if problem and problem != self._problem:
            _log.error("secrets_keys_unreadable", error=problem)
        self._problem = problem
        return self._keys


def keys_of_command(line: str, timeout_s: float = COMMAND_TIMEOUT_S) -> Keys:
    """Run a command, without a shell, and return the keys that it prints."""
    return parse_keys(_output_of(line, timeout_s), "--secrets-key-command")


def create_key_file(path: Path) -> None:
    """Create the file with a new key, unless there is one; only its owner can read it."""
    text = b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with os_errors_as(InvalidRequest, f"cannot create {path}"):
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, text)
            os.fsync(fd)
            # A link never replaces a file, so two masters cannot take different keys.
            os.link(scratch, path)
        except FileExistsError:
            return
        finally:
            os.close(fd)
            scratch.unlink()
        sync_directory(path.parent)


def open_keys(path: Path | None, command: str, *, is_shared: bool) -> KeySource:
    """Return the source of a master's keys, which has none without a path and a command.

    A missing file is created, unless masters share the store: then all need the same keys.
    """
    if command:
        keys = keys_of_command(command)
        return lambda: keys
    if path is None:
        return tuple
    path = path.expanduser()
    if not path.exists():
        if is_shared:
            raise InvalidRequest(
                f"--secrets-key-file {path} does not exist; masters that share a store need the"
                f" same keys: make one ({HOW_TO_MAKE}) and copy it to each"
            )
        create_key_file(path)
        _log.info("secrets_key_created", path=str(path))
    return KeyFile(path)


def _output_of(line: str, timeout_s: float) -> str:
    try:
        words = shlex.split(line)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        raise InvalidRequest(f"--secrets-key-command did not end in {timeout_s:g} s") from None
    except (OSError, ValueError, IndexError) as error:
        why = getattr(error, "strerror", None) or error
        raise InvalidRequest(f"--secrets-key-command cannot be run: {why}") from None
    if done.returncode:
        # Its standard error may help, and is not where a key belongs.
        said = done.stderr.decode(errors="replace").strip()[-300:]
        raise InvalidRequest(f"--secrets-key-command failed with {done.returncode}: {said}")
    try:
        return done.stdout[:MAX_TEXT].decode("ascii")
    except UnicodeDecodeError:
        raise InvalidRequest("--secrets-key-command printed no keys in base64") from None


def _read(path: Path) -> tuple[tuple[int, ...], Keys]:
    with os_errors_as(InvalidRequest, f"cannot read {path}"), path.open("rb") as file:
        status = os.fstat(file.fileno())
        content = file.read(MAX_TEXT)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidRequest(f"others than its owner can use {path}; run: chmod 600 {path}")
    return _version(status), parse_keys(content.decode(errors="replace"), str(path))


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


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
    """Seals values and opens them; see `KeyBox`. A framework's tests have one without keys."""

    def seal(self, place: SecretPlace, value: str, /) -> SealedValue:
        """Seal one value."""
        ...

    def open(self, place: SecretPlace, sealed: SealedValue, /) -> str:
        """Return the plain value."""
        ...


class KeyBox:
    """A box with keys: the first seals, all open. Without keys it does neither."""

    def __init__(self, keys: KeySource = tuple) -> None:
        self._keys = keys

    def seal(self, place: SecretPlace, value: str) -> SealedValue:
        """Seal one value with the first key; raises InvalidRequest if there is no key."""
        key = next(iter(self._keys()), None)
        if key is None:
            raise InvalidRequest(NO_KEY)
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = _cipher(key).encrypt(nonce, value.encode(), place.data())
        return SealedValue(key.key_id, b64encode(nonce + sealed).decode())

    def open(self, place: SecretPlace, sealed: SealedValue) -> str:
        """Return the plain value, by the key that sealed it.

        Raises Unopenable if there is no such key, or the value was sealed for another place.
        """
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
    """Return the task with its secrets sealed; raises InvalidRequest if there is no key."""
    sealed = {
        name: box.seal(SecretPlace(framework_id, task.task_id, name), value)
        for name, value in values.reveal().items()
    }
    return replace(task, command=replace(task.command, secrets=sealed))


def open_task(box: SecretBox, framework_id: FrameworkId, task: TaskInfo) -> SecretValues:
    """Return the plain values of a task's secrets; raises Unopenable if one cannot be opened."""
    return SecretValues(
        {
            name: box.open(SecretPlace(framework_id, task.task_id, name), sealed)
            for name, sealed in task.command.secrets.items()
        }
    )


def _cipher(key: SecretKey) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key.content)
