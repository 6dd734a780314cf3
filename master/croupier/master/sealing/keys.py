"""Keys for secrets, from a file or from a command.

Both hold one key a line: 32 bytes in base64. Empty lines and lines that begin with `#` do not
count. The first key seals, and all open, so a new key is put first and the old ones stay until no
task waits that they sealed. A key's id is part of its hash: it is the same on all masters.

Errors never quote a line.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shlex
import stat
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.process.durable_files import sync_directory
from croupier.process.logging import get_logger

KEY_BYTES: Final = 32
MAX_KEYS: Final = 16
MAX_TEXT: Final = 64 * 1024
COMMAND_TIMEOUT_S: Final = 30.0
HOW_TO_MAKE: Final = "`openssl rand -base64 32` makes one"

_log = get_logger("croupier.master")


@dataclass(frozen=True, slots=True)
class SecretKey:
    """A key of AES-256.

    Attributes:
        key_id: the first 8 hex digits of a hash of the key.
    """

    content: bytes = field(repr=False)

    @property
    def key_id(self) -> str:
        """The name of the key in sealed values."""
        return hashlib.sha256(b"croupier secrets key" + self.content).hexdigest()[:8]


# The sealing one first.
Keys = tuple[SecretKey, ...]
KeySource = Callable[[], Keys]


def parse_keys(text: str, source: str) -> Keys:
    """Read one key from each line of `text`; errors name the `source`.

    Raises:
        InvalidRequest: if a line is not a key, or there is none.
    """
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
        """Read the file.

        Raises:
            InvalidRequest: if it cannot be read, or others than its owner can read it.
        """
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
    """Run a command, without a shell, and return the keys that it prints.

    Raises:
        InvalidRequest: if it fails, prints no keys, or takes over `timeout_s` seconds.
    """
    return parse_keys(_output_of(line, timeout_s), "--secrets-key-command")


def create_key_file(path: Path) -> None:
    """Create the file with a new key, unless there is one; only its owner can read it.

    Raises:
        InvalidRequest: if it cannot be created.
    """
    text = b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
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
    except OSError as error:
        raise InvalidRequest(f"cannot create {path}: {error.strerror}") from error


def open_keys(path: Path | None, command: str, *, is_shared: bool) -> KeySource:
    """Return the source of a master's keys, which has none without a path and a command.

    A missing file is created, unless masters share the store: then all need the same keys.

    Raises:
        InvalidRequest: if the keys cannot be read.
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
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            content = file.read(MAX_TEXT)
    except OSError as error:
        raise InvalidRequest(f"cannot read {path}: {error.strerror}") from None
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidRequest(f"others than its owner can use {path}; run: chmod 600 {path}")
    return _version(status), parse_keys(content.decode(errors="replace"), str(path))


def _version(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
