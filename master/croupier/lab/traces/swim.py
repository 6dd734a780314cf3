"""Jobs of the SWIM traces (Chen et al., Statistical Workload Injector for MapReduce).

A line is a job, with six columns between tabs: id, submit time in seconds, seconds since the
job before, and the bytes of map input, shuffle and reduce output.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from croupier.lab.traces.lines import find, read_lines, whole
from croupier.model.errors import InvalidRequest

NAMES = ("FB-2010_samples_24_times_1hr_0.tsv", "swim_fb2010.tsv")
WHERE = (
    "The trace of a day at Facebook in 2010 is public: workloadSuite/"
    "FB-2010_samples_24_times_1hr_0.tsv of https://github.com/SWIMProjectUCB/SWIM"
)
_COLUMNS = ("submit time", "inter-arrival time", "map input", "shuffle", "reduce output")


@dataclass(frozen=True, slots=True)
class SwimJob:
    """A job of the trace; sizes are in bytes."""

    name: str
    submit_s: int
    map_input: int
    shuffle: int
    output: int


def read_swim(data: Path) -> list[SwimJob]:
    """Return all jobs of the file `data`, or of the known file in that folder, by time.

    Raises:
        InvalidRequest: if there is no such file, or a line of it is malformed.
    """
    path = find(data, NAMES, WHERE)
    jobs = [_job(path, number, line) for number, line in read_lines(path)]
    if not jobs:
        raise InvalidRequest(f"{path.name} holds no jobs. {WHERE}")
    return sorted(jobs, key=lambda job: job.submit_s)


def _job(path: Path, number: int, line: str) -> SwimJob:
    name, *cells = line.split("\t")
    if len(cells) != len(_COLUMNS):
        raise InvalidRequest(
            f"{path.name}, line {number}: {len(cells) + 1} columns, where a SWIM trace has 6"
        )
    submit_s, _, map_input, shuffle, output = (
        whole(path, number, column, cell) for column, cell in zip(_COLUMNS, cells, strict=True)
    )
    if not name:
        raise InvalidRequest(f"{path.name}, line {number}: the job has no id")
    return SwimJob(name, submit_s, map_input, shuffle, output)
