"""Isolation, limits and use of tasks."""

from __future__ import annotations

from typing import TypedDict

from croupier.api.objects import as_object
from croupier.v1 import operator_pb2 as pb


class Limits(TypedDict):
    """The limits that a task names itself; None: the default.

    cpus, mem and disk are in thousandths, of a MiB for mem and disk.
    """

    cpus: int | None
    mem: int | None
    disk: int | None
    pids: int | None
    files: int | None
    max_completion_s: float | None


class Isolation(TypedDict):
    """The isolation that a task asks for.

    Attributes:
        namespaces: namespaces of its own.
        image: None is the agent's file system.
    """

    namespaces: bool
    no_network: bool
    image: str | None


class Usage(TypedDict):
    """What a task has used; None is unknown."""

    cpu_s: float
    memory_peak_bytes: int | None
    pids_peak: int | None
    read_bytes: int | None
    written_bytes: int | None
    disk_bytes: int | None


class TaskUse(TypedDict):
    """What a live task has used so far.

    Attributes:
        usage: None: its agent does not measure tasks.
        limits: those that its agent enforces.
    """

    usage: Usage | None
    limits: Limits


def task_use_view(use: pb.GetTaskUseResponse) -> TaskUse:
    """Return what a live task has used so far."""
    return as_object(TaskUse, use, limits=as_object(Limits, use.limits, use))
