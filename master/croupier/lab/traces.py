"""Readers of public traces. The files are not part of Croupier; each reader names their source.

- SWIM (Chen et al., Statistical Workload Injector for MapReduce): a line is a job, with six columns
  between tabs: id, submit time in seconds, seconds since the job before, and the bytes of map
  input, shuffle and reduce output.
- openb (Alibaba, cluster-trace-gpu-v2023; Weng et al., ATC 2023): nodes and pods in two CSV files
  with a header line each. CPUs and parts of a GPU are in thousandths, memory is in MiB, times are
  in seconds.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from croupier.model.errors import InvalidRequest

SWIM_NAMES = ("FB-2010_samples_24_times_1hr_0.tsv", "swim_fb2010.tsv")
SWIM_SOURCE = (
    "The trace of a day at Facebook in 2010 is public: workloadSuite/"
    "FB-2010_samples_24_times_1hr_0.tsv of https://github.com/SWIMProjectUCB/SWIM"
)
_SWIM_COLUMNS = ("submit time", "inter-arrival time", "map input", "shuffle", "reduce output")
NODE_NAMES = ("openb_node_list_all_node.csv", "openb_nodes.csv")
POD_NAMES = ("openb_pod_list_default.csv", "openb_pods.csv")
OPENB_SOURCE = (
    "The trace is public: csv/openb_node_list_all_node.csv and csv/openb_pod_list_default.csv of "
    "cluster-trace-gpu-v2023 in https://github.com/alibaba/clusterdata"
)
_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "qos", "creation_time",
                "deletion_time")  # fmt: skip
Row = dict[str, str]
T = TypeVar("T")


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield lines that are not empty, with their numbers from 1; raises InvalidRequest."""
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if _is_gzip(path)
            else path.open(encoding="utf-8") as file
        ):
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"{path.name} cannot be read: {error}") from None


def find(data: Path, names: Iterable[str], help_: str) -> Path:
    """Return the first of `names`, plain or with `.gz`, in `data`; or `data`, if a file.

    Raises InvalidRequest if there is none; the message ends with `help_`.
    """
    if data.is_file():
        return data
    wanted = list(names)
    for name in wanted:
        for path in (data / name, data / f"{name}.gz"):
            if path.is_file():
                return path
    raise InvalidRequest(f"--data {data}: there is no {' or '.join(wanted)}. {help_}")


def whole(path: Path, number: int, name: str, text: str) -> int:
    """Read a whole number from 0; raises InvalidRequest with file, line and column."""
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise InvalidRequest(
        f"{path.name}, line {number}: {name} is {text[:40]!r}, not a whole number from 0"
    )


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class SwimJob:
    """A job of the trace; sizes are in bytes."""

    name: str
    submit_s: int
    map_input: int
    shuffle: int
    output: int


def read_swim(data: Path) -> list[SwimJob]:
    """Return all jobs of the file or folder `data` by time; raises InvalidRequest if malformed."""
    path = find(data, SWIM_NAMES, SWIM_SOURCE)
    jobs = [_job(path, number, line) for number, line in read_lines(path)]
    if not jobs:
        raise InvalidRequest(f"{path.name} holds no jobs. {SWIM_SOURCE}")
    return sorted(jobs, key=lambda job: job.submit_s)


def _job(path: Path, number: int, line: str) -> SwimJob:
    name, *cells = line.split("\t")
    if len(cells) != len(_SWIM_COLUMNS):
        raise InvalidRequest(
            f"{path.name}, line {number}: {len(cells) + 1} columns, where a SWIM trace has 6"
        )
    submit_s, _, map_input, shuffle, output = (
        whole(path, number, column, cell) for column, cell in zip(_SWIM_COLUMNS, cells, strict=True)
    )
    if not name:
        raise InvalidRequest(f"{path.name}, line {number}: the job has no id")
    return SwimJob(name, submit_s, map_input, shuffle, output)


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
    """Return all nodes in the file's order; raises InvalidRequest if it is missing or malformed."""
    return _read(data, "nodes", NODE_NAMES, _NODE_COLUMNS, _node)


def read_pods(data: Path) -> list[Pod]:
    """Return all pods by creation time; raises InvalidRequest if the file is not as expected."""
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
        raise InvalidRequest(f"--data {data}: not a folder. {OPENB_SOURCE}")
    path = find(data, names, OPENB_SOURCE)
    items = [make(path, *row) for row in _rows(path, columns)]
    if not items:
        raise InvalidRequest(f"{path.name} holds no {what}. {OPENB_SOURCE}")
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
