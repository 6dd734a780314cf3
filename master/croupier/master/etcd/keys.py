"""The keys of one cluster in etcd.

    /PREFIX/leader            the address of the leading master; deleted with its lease
    /PREFIX/master@HOST:PORT  a running master (leadership.candidate); deleted with its lease
    /PREFIX/head              the last commit; see croupier.master.store.etcd
    /PREFIX/schema            the version of the format
    /PREFIX/records/KIND/ID   a record
    /PREFIX/staged/NUMBER     part of a commit that is too large for one transaction

These names are part of the format. A prefix cannot contain `@`, so the keys of running masters are
never those of another cluster.
"""

from __future__ import annotations


class Keys:
    """The keys under `prefix`, which has no slash at either end.

    Attributes:
        leader: its create_revision is the fencing token.
        masters, records, staged: the prefixes of running masters, records and staged parts.
    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.leader, self.masters, self.head, self.schema, self.records, self.staged = (
            f"/{prefix}/{name}".encode()
            for name in ("leader", "master@", "head", "schema", "records/", "staged/")
        )

    def master(self, address: str) -> bytes:
        """Return the key of the running master at `address`."""
        return self.masters + address.encode()

    def master_of(self, key: bytes) -> str:
        """Return the address of the running master under `key`."""
        return key[len(self.masters) :].decode(errors="replace")

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
