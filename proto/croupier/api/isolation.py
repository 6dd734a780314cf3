"""Isolation, limits and use of tasks."""

from __future__ import annotations

from typing import TypedDict

from croupier.v1 import operator_pb2, task_pb2


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


def limits_view(task: task_pb2.TaskInfo) -> Limits:
    """Return the limits that a task names itself."""
    own = task.limits
    return {
        "cpus": own.cpus_milli or None,
        "mem": own.mem_milli or None,
        "disk": own.disk_milli or None,
        "pids": own.pids or None,
        "files": own.files or None,
        "max_completion_s": task.max_completion_ms / 1000 if task.max_completion_ms else None,
    }


def isolation_view(task: task_pb2.TaskInfo) -> Isolation:
    """Return the isolation that a task asks for."""
    asked = task.isolation
    return {
        "namespaces": asked.namespaces,
        "no_network": asked.no_network,
        "image": asked.image or None,
    }


def usage_view(usage: task_pb2.Usage) -> Usage:
    """Return what a task has used."""
    return {
        "cpu_s": usage.cpu_ms / 1000,
        "memory_peak_bytes": usage.memory_peak_bytes or None,
        "pids_peak": usage.pids_peak or None,
        "read_bytes": usage.read_bytes or None,
        "written_bytes": usage.written_bytes or None,
        "disk_bytes": usage.disk_bytes or None,
    }


def task_use_view(use: operator_pb2.GetTaskUseResponse) -> TaskUse:
    """Return what a live task has used so far."""
    bounds = task_pb2.TaskInfo(limits=use.limits, max_completion_ms=use.max_completion_ms)
    usage = usage_view(use.usage) if use.HasField("usage") else None
    return {"usage": usage, "limits": limits_view(bounds)}
