"""Operations of etcd's transactions."""

from __future__ import annotations

from collections.abc import Iterable

from croupier.etcd.v3 import etcd_pb2 as pb


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
