"""Limits, isolation and usage of tasks to and from the wire."""

from __future__ import annotations

from croupier.model.isolation import NO_ISOLATION, NO_LIMITS, Isolation, Limits, Usage
from croupier.v1 import task_pb2 as pb

# Above all that a task can use; a false agent may send any number.
_MAX_USED = 2**62


def limits_to_wire(limits: Limits) -> pb.Limits | None:
    """Return the message for `limits`; None if there are none."""
    if limits == NO_LIMITS:
        return None
    return pb.Limits(
        cpus_milli=limits.cpus,
        mem_milli=limits.mem,
        disk_milli=limits.disk,
        pids=limits.pids,
        files=limits.files,
    )


def limits_from_wire(wire: pb.Limits) -> Limits:
    """Return the limits in `wire`; `Limits.check` checks them."""
    return Limits(wire.cpus_milli, wire.mem_milli, wire.disk_milli, wire.pids, wire.files)


def isolation_to_wire(isolation: Isolation) -> pb.Isolation | None:
    """Return the message for `isolation`; None if the task asks for none."""
    if isolation == NO_ISOLATION:
        return None
    return pb.Isolation(
        namespaces=isolation.namespaces, no_network=isolation.no_network, image=isolation.image
    )


def isolation_from_wire(wire: pb.Isolation) -> Isolation:
    """Return the isolation in `wire`; `Isolation.check` checks it."""
    return Isolation(wire.namespaces, wire.no_network, wire.image)


def usage_to_wire(usage: Usage | None) -> pb.Usage | None:
    """Return the message for `usage`; None if it was not measured."""
    if usage is None:
        return None
    return pb.Usage(
        cpu_ms=usage.cpu_ms,
        memory_peak_bytes=usage.memory_peak,
        pids_peak=usage.pids_peak,
        read_bytes=usage.read_bytes,
        written_bytes=usage.written_bytes,
        disk_bytes=usage.disk_bytes,
    )


def usage_from_wire(wire: pb.Usage) -> Usage:
    """Return the usage in `wire`, each number bounded."""
    return Usage(
        min(wire.cpu_ms, _MAX_USED),
        min(wire.memory_peak_bytes, _MAX_USED),
        min(wire.pids_peak, _MAX_USED),
        min(wire.read_bytes, _MAX_USED),
        min(wire.written_bytes, _MAX_USED),
        min(wire.disk_bytes, _MAX_USED),
    )
