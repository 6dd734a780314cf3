"""The keys of one cluster in etcd.

    /PREFIX/leader            the address of the leading master; deleted with its lease
    /PREFIX/head              the last commit; see croupier.master.store.etcd
    /PREFIX/schema            the version of the format
    /PREFIX/records/KIND/ID   a record
    /PREFIX/staged/NUMBER     part of a commit that is too large for one transaction

These names are part of the format.
"""

from __future__ import annotations


class Keys:
    """The keys under `prefix`, which has no slash at either end.

    Attributes:
        leader: its create_revision is the fencing token.
        records, staged: the prefixes of records and of staged parts.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.leader, self.head, self.schema, self.records, self.staged = (
            f"/{prefix}/{name}".encode()
            for name in ("leader", "head", "schema", "records/", "staged/")
        )

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
