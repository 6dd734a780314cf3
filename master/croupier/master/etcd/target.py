"""The address of an etcd, the prefix of a cluster's keys, and the credentials."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from croupier.model.errors import InvalidRequest
from croupier.net.address import Address, parse_addresses

SCHEME: Final = "etcd://"
DEFAULT_PORT: Final = 2379
DEFAULT_PREFIX: Final = "croupier"

_COMPONENT = re.compile(r"[A-Za-z0-9._-]{1,100}")
# Names of our own keys: the keys of a cluster `a/records` would be records of the cluster `a`.
_OURS = frozenset({"leader", "head", "schema", "records", "staged"})


@dataclass(frozen=True, slots=True)
class EtcdTarget:
    """The members of an etcd, and the prefix of a cluster's keys.

    Attributes:
        prefix: without a slash at either end. Clusters of different prefixes are separate.
    """

    endpoints: tuple[Address, ...]
    prefix: str

    @classmethod
    def parse(cls, text: str) -> EtcdTarget:
        """Read `etcd://HOST[:PORT],HOST[:PORT].../PREFIX`.

        Raises:
            InvalidRequest: if `text` has another form.
        """
        if not text.startswith(SCHEME):
            raise InvalidRequest(f"{text!r} is not {SCHEME}HOST:PORT,.../PREFIX")
        hosts, _, path = text.removeprefix(SCHEME).partition("/")
        prefix = path.strip("/") or DEFAULT_PREFIX
        for component in prefix.split("/"):
            if not _COMPONENT.fullmatch(component) or component in {".", ".."} | _OURS:
                raise InvalidRequest(f"{text!r}: {component!r} cannot be part of a prefix")
        return cls(parse_addresses(hosts, DEFAULT_PORT), prefix)

    def __str__(self) -> str:
        return f"{SCHEME}{','.join(map(str, self.endpoints))}/{self.prefix}"


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """Credentials for etcd; by default none, over plain text.

    Attributes:
        ca: the certificates that etcd's certificate must be signed by. Without `ca` and `cert`,
            connections are plain text.
        cert: the master's client certificate, with its `key`; None for none.
        user: a user of etcd's own authentication; empty for none.
    """

    ca: bytes | None = field(default=None, repr=False)
    cert: bytes | None = field(default=None, repr=False)
    key: bytes | None = field(default=None, repr=False)
    user: str = ""
    password: str = field(default="", repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Return whether connections use TLS."""
        return self.ca is not None or self.cert is not None

    @property
    def certificate_expires_at(self) -> float | None:
        """Return the Unix time, in seconds, at which `cert` expires; None without one."""
        from croupier.net.certificate import parse_certificates

        try:
            return None if self.cert is None else parse_certificates(self.cert)[0].expires_at
        except InvalidRequest:
            # etcd refuses it with a reason.
            return None
