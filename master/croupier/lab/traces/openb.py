"""Nodes and pods of the openb trace (Alibaba, cluster-trace-gpu-v2023; Weng et al., ATC 2023).

Two CSV files with a header line each. CPUs and parts of a GPU are in thousandths, memory is in
MiB, times are in seconds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from croupier.lab.traces.lines import find, read_lines, whole
from croupier.model.errors import InvalidRequest

NODE_NAMES = ("openb_node_list_all_node.csv", "openb_nodes.csv")
POD_NAMES = ("openb_pod_list_default.csv", "openb_pods.csv")
WHERE = (
    "The trace is public: csv/openb_node_list_all_node.csv and csv/openb_pod_list_default.csv of "
    "cluster-trace-gpu-v2023 in https://github.com/alibaba/clusterdata"
)
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "creation_time",
                "deletion_time")  # fmt: skip
Row = dict[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, which requests `gpu_milli` thousandths of each of `gpus` GPUs."""

    name: str
    cpu_milli: int
    mem_mib: int
    gpus: int
    gpu_milli: int
    qos: str
    created_s: int
    deleted_s: int

    @property
    def gpu_total(self) -> int:
        """Thousandths of a GPU in all."""
        return self.gpus * self.gpu_milli


def read_nodes(data: Path) -> list[GpuNode]:
    """Return all nodes, in the order of the file.

    Raises:
        InvalidRequest: if there is no such file in the folder, or a line is malformed.
    """
    return _read(data, "nodes", NODE_NAMES, _NODE_COLUMNS, _node)


def read_pods(data: Path) -> list[Pod]:
    """Return all pods, by creation time.

    Raises:
        InvalidRequest: if there is no such file in the folder, or a line is malformed.
    """
    pods = _read(data, "pods", POD_NAMES, _POD_COLUMNS, _pod)
    return sorted(pods, key=lambda pod: pod.created_s)


def _read(
    data: Path,
    what: str,
    names: Sequence[str],
    columns: Sequence[str],
    make: Callable[[Path, int, Row], T],
) -> list[T]:
    if not data.is_dir():
        raise InvalidRequest(f"--data {data}: not a folder. {WHERE}")
    path = find(data, names, WHERE)
    items = [make(path, *row) for row in _rows(path, columns)]
    if not items:
        raise InvalidRequest(f"{path.name} holds no {what}. {WHERE}")
    return items


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[int, Row]]:
    """Yield each line's number and cells; the header must name at least `columns`."""
    lines = read_lines(path)
    _, header = next(lines, (0, ""))
    titles = next(csv.reader([header]), [])
    missing = [column for column in columns if column not in titles]
    if missing:
        raise InvalidRequest(f"{path.name}, line 1: there is no column {', '.join(missing)}")
    for number, line in lines:
        cells = next(csv.reader([line]), [])
        if len(cells) != len(titles):
            raise InvalidRequest(
                f"{path.name}, line {number}: {len(cells)} cells under {len(titles)} titles"
            )
        yield number, dict(zip(titles, cells, strict=True))


def _node(path: Path, number: int, row: Row) -> GpuNode:
    cpu, mem, gpus = (
        whole(path, number, column, row[column]) for column in ("cpu_milli", "memory_mib", "gpu")
    )
    _check_name(path, number, row["sn"])
    if not cpu or not mem:
        raise InvalidRequest(f"{path.name}, line {number}: the node has no CPUs or no memory")
    return GpuNode(row["sn"], cpu, mem, gpus)


def _pod(path: Path, number: int, row: Row) -> Pod:
    cpu, mem, gpus, milli, created, deleted = (
        whole(path, number, column, row[column])
        for column in (*_POD_COLUMNS[1:5], *_POD_COLUMNS[6:])
    )
    _check_name(path, number, row["name"])
    if not cpu and not mem:
        raise InvalidRequest(f"{path.name}, line {number}: the pod asks for nothing")
    if milli > 1000 or bool(gpus) != bool(milli) or (gpus > 1 and milli != 1000):
        raise InvalidRequest(
            f"{path.name}, line {number}: {gpus} GPUs of {milli} thousandths each is not a request"
        )
    if deleted < created:
        raise InvalidRequest(f"{path.name}, line {number}: deleted before it was created")
    return Pod(row["name"], cpu, mem, gpus, milli, row["qos"], created, deleted)


def _check_name(path: Path, number: int, name: str) -> None:
    if not name:
        raise InvalidRequest(f"{path.name}, line {number}: it has no name")
