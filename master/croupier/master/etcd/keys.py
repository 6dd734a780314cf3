"""The keys of one cluster in etcd.

/PREFIX/leader            the address of the master that leads, for as long as its lease
/PREFIX/head              the last commit; see croupier.master.store.etcd
/PREFIX/schema            the version of what is stored
/PREFIX/records/KIND/ID   a record
/PREFIX/staged/NUMBER     part of a commit that is too large for one transaction
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys under `prefix`, which has no slash at either end."""

    prefix: str

    @property
    def leader(self) -> bytes:
        """Of the election; its create_revision is the number of the leadership."""
        return self._key("leader")

    @property
    def head(self) -> bytes:
        """Changed by every commit."""
        return self._key("head")

    @property
    def schema(self) -> bytes:
        """The version of what is stored."""
        return self._key("schema")

    @property
    def records(self) -> bytes:
        """What all records' keys begin with."""
        return self._key("records/")

    @property
    def staged(self) -> bytes:
        """What all parts' keys begin with."""
        return self._key("staged/")

    def record(self, kind: str, record_id: str) -> bytes:
        """Of one record."""
        return self.records + f"{kind}/{record_id}".encode(errors="surrogatepass")

    def record_of(self, key: bytes) -> tuple[str, str]:
        """The kind and id of the record under `key`."""
        kind, _, record_id = key[len(self.records) :].decode(errors="replace").partition("/")
        return kind, record_id

    def part(self, number: int) -> bytes:
        """Of one part."""
        return self.staged + b"%06d" % number

    def _key(self, rest: str) -> bytes:
        return f"/{self.prefix}/{rest}".encode()
