"""Figure 8 of the DRF paper (section 7.1): shares follow demands that change.

48 nodes of 4 CPUs and 14 GB; two frameworks with endless tasks. The demand of a task changes after
two and after four minutes. According to the paper's text, first job 1 holds about 70 % of the
memory and job 2 about 75 % of the CPUs; then CPU is dominant for both and each holds about 50 % of
it; then memory is dominant for both and each holds about 40 %, less than half because nodes of 14
GB are not filled by tasks of 7 and 4 GB.

The paper does not print how long tasks ran. Here a task takes 5 to 15 s, so a phase's first
20 s still have tasks of the old kind, and are not checked.
"""

from __future__ import annotations

from functools import partial
from random import Random

from croupier.lab.cluster import Node, Series, SimulatedCluster, make_allocator
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import SimulatedFramework
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

EXPECTED = (
    "Section 7.1 of the DRF paper: two jobs whose demands change after 2 and 4 minutes.\n"
    "Expected shares: 70 % of memory and 75 % of CPUs; then 50 % of CPUs each; then 40 %\n"
    "of memory each, because tasks do not fill the nodes."
)

NODES = 48
NODE = Size.of(4, 14)
PHASE_S = 120.0
SETTLING_S = 20.0
TASK_S = (5.0, 15.0)
# CPUs and GB of one task of job 1 and of job 2 in each phase.
PHASES = (((1, 10), (1, 1)), ((2, 4), (1, 3)), ((1, 7), (1, 4)))
# In each phase and for each job: the resource and the share that the paper states.
STATED = (
    (("mem", 0.70), ("cpus", 0.75)),
    (("cpus", 0.50), ("cpus", 0.50)),
    (("mem", 0.40), ("mem", 0.40)),
)
TOLERANCE = 0.04
_BACKLOG = 400


class _EndlessJob:
    """A job that always has more tasks of its current shape than fit."""

    def __init__(self, cluster: SimulatedCluster, name: str, shape: Shape) -> None:
        self._rng: Random = cluster.rng
        self._shape = shape
        self.framework: SimulatedFramework = cluster.framework(
            name, name, None, self._tasks(_BACKLOG), self._on_end
        )

    def change(self, shape: Shape) -> None:
        """Give the tasks another shape from now on."""
        self._shape = shape
        self.framework.withdraw()
        self.framework.submit(self._tasks(_BACKLOG))

    def _tasks(self, count: int) -> list[Work]:
        return [Work(self._shape, self._rng.uniform(*TASK_S)) for _ in range(count)]

    def _on_end(self, _work: Work) -> None:
        self.framework.submit(self._tasks(1))


def run(options: Options, progress: Progress) -> Result:
    """Run six minutes."""
    nodes = [Node(f"n{i}", NODE, NODE.resources) for i in range(NODES)]
    cluster = SimulatedCluster(nodes, make_allocator(seed=options.seed), options.seed)
    jobs = [_EndlessJob(cluster, f"job{i + 1}", _shape(0, i)) for i in range(2)]
    for phase in range(1, len(PHASES)):
        for i, job in enumerate(jobs):
            cluster.kernel.at(phase * PHASE_S, partial(job.change, _shape(phase, i)))
    series = Series(cluster.kernel, 1.0)
    for job in jobs:
        _watch(series, cluster, job.framework)
    end = PHASE_S * len(PHASES)
    cluster.run(end, lambda now: progress(now / end, "drf-paper-fig8"))
    return _result(series, cluster.simulated)


def _shape(phase: int, job: int) -> Shape:
    use = Size.of(*PHASES[phase][job])
    return Shape(use.resources, use)


def _watch(series: Series, cluster: SimulatedCluster, framework: SimulatedFramework) -> None:
    totals = {"cpus": cluster.size.cpus, "mem": cluster.size.mem}

    def share(resource: str) -> float:
        return framework.held.get(resource, 0) / totals[resource]

    series.watch(f"{framework.name} cpus", lambda: share("cpus"))
    series.watch(f"{framework.name} mem", lambda: share("mem"))
    series.watch(f"{framework.name} dominant", lambda: max(map(share, totals)))


def _result(series: Series, simulated: Simulated) -> Result:
    checks = []
    rows = []
    for phase, stated in enumerate(STATED):
        start, end = phase * PHASE_S + SETTLING_S, (phase + 1) * PHASE_S
        for job, (resource, expected) in enumerate(stated):
            name = f"job{job + 1}"
            got = {what: series.mean(f"{name} {what}", start, end) for what in ("cpus", "mem")}
            cpus, mem_gb = PHASES[phase][job]
            minutes, task = f"{phase * 2}-{phase * 2 + 2} min", f"<{cpus} CPU, {mem_gb} GB>"
            rows.append((minutes, name, task, got["cpus"], got["mem"], expected))
            checks.append(
                Check(
                    f"minutes {phase * 2} to {phase * 2 + 2}: share of {resource} of {name}",
                    f"{expected:.0%} within {TOLERANCE:.0%}, as in the paper",
                    f"{got[resource]:.1%}",
                    abs(got[resource] - expected) <= TOLERANCE,
                )
            )
    columns = ("phase", "job", "one task", "share of CPUs", "share of memory", "paper (dominant)")
    tables = (Table("fig8", columns, tuple(rows)),)
    return Result(tuple(checks), tables, _plots(series), simulated=simulated)


def _plots(series: Series) -> tuple[Plot, ...]:
    def lines(*names: tuple[str, str]) -> tuple[Line, ...]:
        return tuple(
            Line(label, [(at / 60, share * 100) for at, share in series.curves[name]])
            for label, name in names
        )

    of_job = [
        Plot(
            f"fig8_job{job}",
            f"Job {job}: shares as its demand changes (DRF paper, figure 8)",
            "minutes",
            "share of the cluster, %",
            lines(("CPUs", f"job{job} cpus"), ("memory", f"job{job} mem")),
            is_step=True,
        )
        for job in (1, 2)
    ]
    dominant = Plot(
        "fig8_dominant",
        "Dominant shares of both jobs (DRF paper, figure 8)",
        "minutes",
        "dominant share, %",
        lines(("job 1", "job1 dominant"), ("job 2", "job2 dominant")),
        is_step=True,
    )
    return (*of_job, dominant)
