"""Jobs: tasks that belong together, in stages, and who submits them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from croupier.sim.cluster import Cluster
from croupier.sim.framework import Habits, PretendFramework
from croupier.sim.work import Work


@dataclass(slots=True, eq=False)
class Job:
    """A job's stages; each begins when all tasks of the one before have ended.

    Attributes:
        stages: those that have not begun.
        left: how many tasks of the present stage have not ended.
        tasks: how many tasks have begun, of all stages so far.
        submitted_at, finished_at: virtual seconds; None while it has not come to that.
    """

    name: str
    stages: list[list[Work]]
    left: int = 0
    tasks: int = 0
    submitted_at: float | None = None
    finished_at: float | None = None

    @property
    def response_s(self) -> float:
        """From submission to the end of the last task."""
        assert self.submitted_at is not None
        assert self.finished_at is not None
        return self.finished_at - self.submitted_at

    def next_stage(self) -> list[Work]:
        """The tasks to submit now; none if the job is done."""
        if not self.stages:
            return []
        works = self.stages.pop(0)
        self.left = len(works)
        self.tasks += self.left
        return works


class LoopingUser:
    """Submits a job, waits until it is done, submits the next, for ever.

    Attributes:
        done: its finished jobs.
        framework: in whose name it submits.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        make_job: Callable[[int], Job],
        habits: Habits | None = None,
    ) -> None:
        """Begin at once; `make_job` is given the number of the job, from 0."""
        self._cluster = cluster
        self._make_job = make_job
        self.done: list[Job] = []
        self._job = make_job(0)
        self._job.submitted_at = cluster.now
        self.framework: PretendFramework = cluster.framework(
            name, name, habits, self._job.next_stage(), self._on_end
        )

    def _on_end(self, _work: Work) -> None:
        job = self._job
        job.left -= 1
        if job.left:
            return
        works = job.next_stage()
        if not works:
            job.finished_at = self._cluster.now
            self.done.append(job)
            self._job = self._make_job(len(self.done))
            self._job.submitted_at = self._cluster.now
            works = self._job.next_stage()
        self.framework.submit(works)


def submit(
    cluster: Cluster,
    job: Job,
    role: str = "*",
    habits: Habits | None = None,
    on_done: Callable[[Job], None] | None = None,
) -> None:
    """Have a framework come for this one job, and leave when it is done."""

    def on_end(_work: Work) -> None:
        job.left -= 1
        if job.left:
            return
        works = job.next_stage()
        if works:
            framework.submit(works)
            return
        job.finished_at = cluster.now
        framework.leave()
        if on_done is not None:
            on_done(job)

    job.submitted_at = cluster.now
    framework = cluster.framework(job.name, role, habits, job.next_stage(), on_end)
