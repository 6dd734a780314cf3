"""Jobs: tasks that belong together, in stages, and the users that submit them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from croupier.lab.cluster import SimulatedCluster
from croupier.sim.work import Work


@dataclass(slots=True, eq=False)
class Job:
    """A job's stages; each begins when all tasks of the one before have ended.

    Attributes:
        stages: the stages that have not begun.
        left: the tasks of the current stage that have not ended.
        tasks: the tasks of all stages that have begun.
        submitted_at, finished_at: virtual seconds; None before.
    """

    name: str
    stages: list[list[Work]]
    left: int = 0
    tasks: int = 0
    submitted_at: float | None = None
    finished_at: float | None = None

    @property
    def response_s(self) -> float:
        """The time from submission to the end of the last task."""
        assert self.submitted_at is not None
        assert self.finished_at is not None
        return self.finished_at - self.submitted_at

    def begin(self, now: float) -> list[Work]:
        """Begin the first stage, and return its tasks."""
        self.submitted_at = now
        return self._next_stage()

    def end_task(self, now: float) -> list[Work]:
        """Record the end of a task, and return the tasks of a stage that begins now."""
        self.left -= 1
        works = [] if self.left else self._next_stage()
        if not self.left:
            self.finished_at = now
        return works

    def _next_stage(self) -> list[Work]:
        works = self.stages.pop(0) if self.stages else []
        self.left = len(works)
        self.tasks += self.left
        return works


class LoopingUser:
    """Submits a job, waits until it is done, and submits the next, for ever.

    Attributes:
        done: the finished jobs.
    """

    def __init__(
        self, cluster: SimulatedCluster, name: str, make_job: Callable[[int], Job]
    ) -> None:
        """Submit the first job; `make_job` takes the number of the job, from 0."""
        self._cluster = cluster
        self._make_job = make_job
        self.done: list[Job] = []
        self._job = make_job(0)
        works = self._job.begin(cluster.now)
        self._framework = cluster.framework(name, name, None, works, self._on_end)

    def _on_end(self, _work: Work) -> None:
        now = self._cluster.now
        works = self._job.end_task(now)
        if self._job.finished_at is not None:
            self.done.append(self._job)
            self._job = self._make_job(len(self.done))
            works = self._job.begin(now)
        self._framework.submit(works)


def submit(cluster: SimulatedCluster, job: Job, on_done: Callable[[Job], None]) -> None:
    """Connect a framework for one job, which leaves when the job is done."""

    def on_end(_work: Work) -> None:
        framework.submit(job.end_task(cluster.now))
        if job.finished_at is not None:
            framework.leave()
            on_done(job)

    works = job.begin(cluster.now)
    framework = cluster.framework(job.name, "*", None, works, on_end)
