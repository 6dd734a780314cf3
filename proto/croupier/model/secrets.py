"""Secrets of tasks: values that nothing prints, and their sealed form.

Rule: the text of a value is reached through `SecretValues.reveal` only, and a codec has no form
for `SecretValues`. So records, logs and errors cannot hold a plain value. Masters keep a
`SealedValue`, which is encrypted; a value that is left out, as in lists, is `WITHHELD`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from croupier.model.errors import InvalidRequest

MAX_SECRETS: Final = 64
MAX_SECRET_BYTES: Final = 64 * 1024
MAX_SECRETS_BYTES: Final = 128 * 1024
# Characters of the sealed values of one task: base64 of ciphertexts, with nonces and key ids.
MAX_SEALED: Final = 2 * MAX_SECRETS_BYTES
# The directory of secrets that a task gets as files.
DIRECTORY_VARIABLE: Final = "CROUPIER_SECRETS_DIR"

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SECRET_NAME: Final = re.compile(
    r"(?:PASSWORD|PASSWD|PASSPHRASE|SECRET|TOKEN|CREDENTIAL|(?:^|_|API|ACCESS|PRIVATE)KEY)S?$",
    re.IGNORECASE,
)
# Tokens of Croupier, GitHub, Slack and AWS, private keys, web tokens, and URLs with a password.
_SECRET_VALUE: Final = re.compile(
    r"(?:crp|gh[pousr])_\w{8}|xox[abps]-|AKIA[A-Z0-9]{12}|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|eyJ[\w-]{8,}\.eyJ|[a-z][a-z0-9+.-]*://[^/@:\s]*:[^/@\s]+@"
)


def looks_secret(name: str, value: str) -> bool:
    """Return whether a plain variable seems to hold a password, a key or a token."""
    return bool(value and (_SECRET_NAME.search(name) or _SECRET_VALUE.match(value)))


@dataclass(frozen=True, slots=True, repr=False)
class SealedValue:
    """An encrypted value, which only masters can open.

    Attributes:
        key_id: names the key that sealed it.
        text: nonce and ciphertext in base64; empty if the value is withheld.
    """

    key_id: str = ""
    text: str = ""

    def __repr__(self) -> str:
        return "SealedValue(withheld)" if not self.text else f"SealedValue(key {self.key_id})"

    @property
    def size(self) -> int:
        """Characters of its text and key id."""
        return len(self.key_id) + len(self.text)


WITHHELD: Final = SealedValue()


class SecretValues:
    """Plain values of a task's secrets by name. Its text shows names only."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._values = dict(values or {})

    def __repr__(self) -> str:
        return f"SecretValues({', '.join(self._values)})"

    def __bool__(self) -> bool:
        return bool(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretValues) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values))

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets cannot be pickled")

    @property
    def names(self) -> frozenset[str]:
        """The names of the secrets."""
        return frozenset(self._values)

    @property
    def size_bytes(self) -> int:
        """Size of names and values in UTF-8."""
        return sum(len((n + v).encode(errors="replace")) for n, v in self._values.items())

    def reveal(self) -> dict[str, str]:
        """Return the values in plain text, for the one place that delivers them."""
        return dict(self._values)

    def withheld(self) -> dict[str, SealedValue]:
        """Return the names with values left out."""
        return dict.fromkeys(self._values, WITHHELD)

    def check(self) -> None:
        """Raise InvalidRequest if no task can be given one of the values; errors quote none."""
        check_secret_names(self._values)
        for name, value in self._values.items():
            if "\0" in value:
                raise InvalidRequest(f"the secret {name} holds a NUL character")
            if len(value.encode(errors="replace")) > MAX_SECRET_BYTES:
                raise InvalidRequest(f"the secret {name} is larger than {MAX_SECRET_BYTES} bytes")
        if self.size_bytes > MAX_SECRETS_BYTES:
            raise InvalidRequest(f"the secrets are larger than {MAX_SECRETS_BYTES} bytes together")


NO_SECRETS: Final = SecretValues()


def check_secret_names(names: Collection[str]) -> None:
    """Check the number of secrets and the form of their names.

    A malformed name is not quoted: it may be a value in the wrong place. Raises InvalidRequest if
    there are too many, or one is malformed.
    """
    if len(names) > MAX_SECRETS:
        raise InvalidRequest(f"a task has more than {MAX_SECRETS} secrets")
    for name in names:
        if not _NAME.fullmatch(name):
            raise InvalidRequest(
                "the name of a secret has 1 to 255 letters, digits and '_', and begins with no"
                " digit; one is not of that form"
            )
        if name == DIRECTORY_VARIABLE:
            raise InvalidRequest(f"no secret can have the name {DIRECTORY_VARIABLE}")
