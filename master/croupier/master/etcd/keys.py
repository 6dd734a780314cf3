"""The keys of one cluster in etcd.

    /PREFIX/leader            the address of the leading master; deleted with its lease
    /PREFIX/head              the last commit; see croupier.master.store.etcd
    /PREFIX/schema            the version of the format
    /PREFIX/records/KIND/ID   a record
    /PREFIX/staged/NUMBER     part of a commit that is too large for one transaction

These names are part of the format.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under `prefix`, which has no slash at either end."""

    prefix: str

    @property
    def leader(self) -> bytes:
        """Return the key of the election; its create_revision is the fencing token."""
        return self._key("leader")

    @property
    def head(self) -> bytes:
        """Return the key that every commit changes."""
        return self._key("head")

    @property
    def schema(self) -> bytes:
        """Return the key of the format's version."""
        return self._key("schema")

    @property
    def records(self) -> bytes:
        """Return the prefix of the keys of records."""
        return self._key("records/")

    @property
    def staged(self) -> bytes:
        """Return the prefix of the keys of staged parts."""
        return self._key("staged/")

    def record(self, kind: str, record_id: str) -> bytes:
        """Return the key of a record."""
        return self.records + f"{kind}/{record_id}".encode(errors="surrogatepass")

    def record_of(self, key: bytes) -> tuple[str, str]:
        """Return kind and id of the record under `key`."""
        kind, _, record_id = key[len(self.records) :].decode(errors="replace").partition("/")
        return kind, record_id

    def part(self, number: int) -> bytes:
        """Return the key of a staged part."""
        return self.staged + b"%06d" % number

    def _key(self, rest: str) -> bytes:
        return f"/{self.prefix}/{rest}".encode()
