"""The usage of a live task, checked: the agent that answers may be false."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from croupier.model.errors import Unavailable
from croupier.v1 import operator_pb2 as pb

_MIB: Final = 2**20
# Fields of an agent's answer, and of the messages, with their factors.
_USAGE: Final = {"cpu_ms": ("cpu_ms", 1.0), "memory_peak": ("memory_peak_bytes", 1.0)} | {
    name: (name, 1.0) for name in ("pids_peak", "read_bytes", "written_bytes", "disk_bytes")
}
_LIMITS: Final = {
    "cpus": ("cpus_milli", 1000.0),
    "memory_bytes": ("mem_milli", 1000 / _MIB),
    "disk_bytes": ("disk_milli", 1000 / _MIB),
    "pids": ("pids", 1.0),
    "files": ("files", 1.0),
}


def use_to_wire(found: Mapping[str, Any]) -> pb.GetTaskUseResponse:
    """Return the message for an agent's answer; raises Unavailable if it has another form."""
    answer = pb.GetTaskUseResponse()
    try:
        if found.get("usage") is not None:
            answer.usage.SetInParent()
            _fill(answer.usage, found["usage"].get, _USAGE)
        limits = found.get("limits") or {}
        _fill(answer.limits, limits.get, _LIMITS)
        answer.max_completion_ms = limits.get("completion_ms") or 0
    except (AttributeError, TypeError, ValueError, OverflowError):
        raise Unavailable("the agent answers in another form") from None
    return answer


def _fill(
    message: Any, get: Callable[[str], float | None], fields: Mapping[str, tuple[str, float]]
) -> None:
    for name, (field, factor) in fields.items():
        number = (get(name) or 0) * factor
        if number < 0:
            raise ValueError(name)
        setattr(message, field, round(number))
