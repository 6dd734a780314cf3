"""What masters ask of etcd: the keys of a cluster, the methods of the API, parts of transactions.

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

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from google.protobuf.message import Message

from croupier.etcd.v3 import etcd_pb2 as pb

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class Method(Generic[Q, A]):
    """A method, with the types of its request and response."""

    path: str
    question: type[Q]
    answer: type[A]


RANGE: Final = Method("/etcdserverpb.KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN: Final = Method("/etcdserverpb.KV/Txn", pb.TxnRequest, pb.TxnResponse)
GRANT: Final = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE: Final = Method(
    "/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse
)
# Streams in both directions; a stream may be one request and one response.
KEEP_ALIVE: Final = Method(
    "/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
WATCH: Final = Method("/etcdserverpb.Watch/Watch", pb.WatchRequest, pb.WatchResponse)
AUTHENTICATE: Final = Method(
    "/etcdserverpb.Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
)
STATUS: Final = Method("/etcdserverpb.Maintenance/Status", pb.StatusRequest, pb.StatusResponse)


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


def created_at(key: bytes, revision: int) -> pb.Compare:
    """Require that `key` was created at that revision; 0 requires that it does not exist."""
    return pb.Compare(key=key, target=pb.Compare.TARGET_CREATE, create_revision=revision)


def modified_at(key: bytes, revision: int) -> pb.Compare:
    """Require that `key` was last changed at that revision; 0 requires that it does not exist."""
    return pb.Compare(key=key, target=pb.Compare.TARGET_MOD, mod_revision=revision)


def get(key: bytes) -> pb.RequestOp:
    """Read one key."""
    return pb.RequestOp(range=pb.RangeRequest(key=key))


def put(key: bytes, value: bytes, lease: int = 0) -> pb.RequestOp:
    """Write one key, which exists as long as `lease` if one is given."""
    return pb.RequestOp(put=pb.PutRequest(key=key, value=value, lease=lease))


def delete(key: bytes, end: bytes = b"") -> pb.RequestOp:
    """Delete one key, or the range up to `end`."""
    return pb.RequestOp(delete_range=pb.DeleteRangeRequest(key=key, range_end=end))


def end_of(prefix: bytes) -> bytes:
    """Return the end of the range of all keys that begin with `prefix`."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def found(operations: Iterable[pb.ResponseOp]) -> list[pb.KeyValue | None]:
    """Return the result of each `get`; None if the key does not exist."""
    return [each.range.kvs[0] if each.range.kvs else None for each in operations]
