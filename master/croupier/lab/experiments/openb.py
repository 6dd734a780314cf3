"""GPUs of a real cluster: packing, spreading and random order, on the openb trace.

Alibaba's cluster-trace-gpu-v2023 has 1,523 nodes and 8,152 pods. At the times of the trace the pods
fill less than a hundredth of the cluster. So pods arrive until nearly every GPU is requested, as in
the authors' paper (Weng et al., USENIX ATC 2023):

- `fill`: every pod arrives once, in the order of the trace, one a second, and none ends. They
  request 98 % of all GPUs. The run measures fragmentation and the pods without room. (Each order
  allocates about as many GPUs: it leaves out large pods or many small ones.)
- `churn`, on every eighth node for three hours: random pods of the trace run as long as in the
  trace, but at most an hour, and arrive so fast that 0.9 of all GPUs are requested at any time.
  The run measures how long pods wait.

Each class of service is a framework in a role of its own. The master knows the sum of GPUs that a
pod requests; `croupier.sim.gpus` chooses the GPUs of a node, and the framework declines an offer
for ten minutes if its GPU parts do not fit the pod. The resource is called `gpu-share`, because a
task's `gpus` must be whole.

Pods are submitted, and ends are noticed, once a minute, which takes a third of the work of doing
each at once. A scale below 1 takes that part of nodes and pods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import TypeVar

from croupier.lab.cluster import Node, Series, SimulatedCluster, make_allocator
from croupier.lab.traces import OPENB_SOURCE, GpuNode, Pod, read_nodes, read_pods
from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.gpus import WHOLE, GpuNeed, GpuPlaces
from croupier.sim.gpus import GpuNode as Gpus
from croupier.sim.machine import Size
from croupier.sim.work import Shape, Work

EXPECTED = (
    "The openb trace of 1,523 nodes with 6,212 GPUs: agents in packing, random and\n"
    "spreading order. Packing leaves the least of the free GPUs fragmented and keeps whole\n"
    "nodes for the pods that want 8 GPUs; spreading breaks into every node, and these wait."
)

ORDERS = ("pack", "random", "spread")
NAME = "gpu-share"
BATCH_S = 60.0
REFUSE_S = 600.0
FOR_EVER_S = 1e9
CHURN_NODES = 8
CHURN_S = 3 * 3600.0
LONGEST_S = 3600.0
LOAD = 0.9
LARGE = 4


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod, its time of arrival, and its duration."""

    pod: Pod
    at: float
    seconds: float


@dataclass(slots=True)
class OpenbRun:
    """The pods under one order of agents; `works` are their tasks."""

    order: str
    series: Series
    arrivals: list[Arrival]
    works: list[Work]
    simulated: Simulated

    @property
    def taken(self) -> float:
        """The part of all GPUs that pods hold at the end."""
        return self.series.curves["taken"][-1][1]

    @property
    def useless(self) -> float:
        """The mean part of all GPUs that was fragmented."""
        return self.series.mean("useless")

    @property
    def unplaced(self) -> int:
        """The number of pods without room."""
        return sum(work.started_at is None for work in self.works)

    def whole_nodes(self) -> tuple[int, int]:
        """Return how many pods of 8 GPUs were placed, and how many there were."""
        large = self._works_of(8, 1000)
        return sum(work.started_at is not None for work in large), len(large)

    def wait(self, least: int, most: int) -> float:
        """Return the mean wait of pods of `least` to `most` GPUs, in seconds."""
        end = self.simulated.virtual_s
        waits = [
            (end if work.started_at is None else work.started_at) - work.submitted_at
            for work in self._works_of(least, most)
        ]
        return fmean(waits) if waits else 0.0

    def _works_of(self, least: int, most: int) -> list[Work]:
        pairs = zip(self.arrivals, self.works, strict=True)
        return [work for each, work in pairs if least <= each.pod.gpus <= most]


def fill(pods: list[Pod]) -> list[Arrival]:
    """Return endless pods, one a second."""
    return [Arrival(pod, float(i), FOR_EVER_S) for i, pod in enumerate(pods)]


def churn(pods: list[Pod], gpus: int, seed: int) -> list[Arrival]:
    """Return random pods that together request `LOAD` times `gpus` on average."""
    rng = Random(seed)
    work = fmean(pod.gpu_total / WHOLE * _seconds(pod) for pod in pods)
    gap = work / (gpus * LOAD)
    drawn = rng.choices(pods, k=int(CHURN_S / gap))
    return [Arrival(pod, i * gap, _seconds(pod)) for i, pod in enumerate(drawn)]


def _seconds(pod: Pod) -> float:
    return min(max(pod.deleted_s - pod.created_s, 1.0), LONGEST_S)


def run_order(
    order: str,
    nodes: list[GpuNode],
    arrivals: list[Arrival],
    seed: int,
    progress: Callable[[float], None],
) -> OpenbRun:
    """Run until the last pod has arrived."""
    cluster = SimulatedCluster(
        (_node(node) for node in nodes),
        make_allocator(order=order, seed=seed, scarce=NAME),
        seed,
        tick_s=BATCH_S,
    )
    places = _places(cluster, nodes, [each.pod for each in arrivals])
    # One pod of a shape per offer: the rest of a larger offer would be filtered with it.
    habits = Habits(max_per_offer=1, refuse_s=REFUSE_S)
    frameworks: dict[str, SimulatedFramework] = {}
    shapes: dict[tuple[int, int, int, int], Shape] = {}
    works: list[Work] = []
    for each in arrivals:
        pod = each.pod
        if pod.qos not in frameworks:
            frameworks[pod.qos] = cluster.framework(pod.qos, pod.qos, habits, places=places)
        key = (pod.cpu_milli, pod.mem_mib, pod.gpus, pod.gpu_milli)
        work = Work(shapes.setdefault(key, _shape(pod)), each.seconds)
        works.append(work)
        places.need(work, _need(pod))
        at = -(-each.at // BATCH_S) * BATCH_S
        cluster.kernel.at(at, partial(frameworks[pod.qos].submit, [work]))
    end = arrivals[-1].at + BATCH_S
    gpus = sum(node.gpus for node in nodes) * WHOLE
    series = Series(cluster.kernel, end / 200)
    series.watch("taken", lambda: places.taken / gpus)
    series.watch("useless", lambda: places.useless / gpus)
    cluster.run(end, lambda now: progress(now / end))
    return OpenbRun(order, series, arrivals, works, cluster.simulated)


def _node(node: GpuNode) -> Node:
    advertised = {"cpus": node.cpu_milli, "mem": node.mem_mib * 1000, NAME: node.gpus * WHOLE}
    return Node(node.name, Size(node.cpu_milli, node.mem_mib * 1000), Resources(advertised))


def _shape(pod: Pod) -> Shape:
    ask = {"cpus": pod.cpu_milli, "mem": pod.mem_mib * 1000, NAME: pod.gpu_total}
    return Shape(Resources(ask), Size(pod.cpu_milli, pod.mem_mib * 1000))


def _need(pod: Pod) -> GpuNeed:
    return GpuNeed(pod.gpus, pod.gpu_milli, Size(pod.cpu_milli, pod.mem_mib * 1000))


def _places(cluster: SimulatedCluster, nodes: list[GpuNode], pods: list[Pod]) -> GpuPlaces:
    return GpuPlaces(
        {
            agent.agent_id: Gpus(node.gpus, agent.machine.size)
            for agent, node in zip(cluster.agents, nodes, strict=True)
        },
        (_need(pod) for pod in pods),
    )


def run(options: Options, progress: Progress) -> Result:
    """Run `fill` and `churn` with each order; raises InvalidRequest without a valid trace."""
    if options.data is None:
        raise InvalidRequest(f"--data is missing. {OPENB_SOURCE}")
    nodes = _part(read_nodes(options.data), options.scale)
    pods = _part(read_pods(options.data), options.scale)
    some = nodes[::CHURN_NODES]
    gpus = sum(node.gpus for node in some)
    if not gpus:
        raise InvalidRequest("the nodes have too few GPUs for this experiment")
    filled, churned = [], []
    for number, order in enumerate(ORDERS):
        begun = number / len(ORDERS)

        def report_done(done: float, begun: float = begun, order: str = order) -> None:
            progress(begun + done / len(ORDERS), order)

        filled.append(
            run_order(order, nodes, fill(pods), options.seed, lambda d: report_done(d * 0.8))
        )
        churned.append(
            run_order(
                order,
                some,
                churn(pods, gpus, options.seed),
                options.seed,
                lambda d: report_done(0.8 + d * 0.2),
            )
        )
    return report(filled, churned, sum(node.gpus for node in nodes))


T = TypeVar("T")
Cells = dict[str, Callable[[OpenbRun], object]]


def _part(items: list[T], scale: float) -> list[T]:
    """Return a part of the list, evenly spread."""
    if scale >= 1:
        return items
    return [items[int(i / scale)] for i in range(int(len(items) * scale))]


def report(filled: list[OpenbRun], churned: list[OpenbRun], gpus: int) -> Result:
    """Return tables, plots and checks of runs in the order of `ORDERS`."""
    asked = sum(each.pod.gpu_total for each in filled[0].arrivals) / WHOLE
    fill_cells: Cells = {
        "order": lambda run: run.order,
        "GPUs given out": lambda run: f"{run.taken:.1%}",
        "fragmented (mean)": lambda run: f"{run.useless:.1%}",
        "pods without room": lambda run: run.unplaced,
        "8-GPU pods": lambda run: "{} of {}".format(*run.whole_nodes()),
    }
    churn_cells: Cells = {
        "order": lambda run: run.order,
        "GPUs in use": lambda run: f"{run.series.mean('taken', CHURN_S / 3):.1%}",
        "fragmented (mean)": lambda run: f"{run.useless:.1%}",
        "wait without GPU, s": lambda run: round(run.wait(0, 0), 1),
        "wait for 1-2 GPUs, s": lambda run: round(run.wait(1, LARGE - 1), 1),
        "wait for 4-8 GPUs, s": lambda run: round(run.wait(LARGE, 1000), 1),
    }
    return Result(
        _checks(filled, churned),
        (Table.of("openb_fill", filled, fill_cells), Table.of("openb_churn", churned, churn_cells)),
        _plots(filled, gpus),
        (
            f"fill: {len(filled[0].arrivals)} pods request {asked:.0f} of {gpus} GPUs",
            f"churn: {len(churned[0].arrivals)} pods; {LOAD:.0%} of GPUs requested on average",
        ),
        sum((run.simulated for run in (*filled, *churned)), Simulated(0, 0)),
    )


def _checks(filled: list[OpenbRun], churned: list[OpenbRun]) -> tuple[Check, ...]:
    pack, shuffled, spread = filled
    fragmented = ", ".join(f"{run.order} {run.useless:.1%}" for run in filled)
    waits = [run.wait(LARGE, 1000) for run in churned]
    return (
        Check(
            "fill: mean part of GPUs that is free and fragmented",
            "least when packing",
            fragmented,
            pack.useless < min(shuffled.useless, spread.useless),
        ),
        Check(
            "fill: pods that want 8 GPUs and found a node",
            "most when packing, nine in ten or more; when spreading less than half",
            ", ".join("{} {} of {}".format(run.order, *run.whole_nodes()) for run in filled),
            _whole(pack) >= max(0.9, _whole(shuffled)) and _whole(spread) < 0.5,
        ),
        Check(
            "churn: mean wait of pods that want 4 or 8 GPUs",
            "less when packing than when spreading",
            ", ".join(f"{run.order} {w:.0f} s" for run, w in zip(churned, waits, strict=True)),
            waits[0] < waits[2],
        ),
    )


def _whole(run: OpenbRun) -> float:
    placed, of_all = run.whole_nodes()
    return placed / of_all if of_all else 1.0


def _plots(filled: list[OpenbRun], gpus: int) -> tuple[Plot, ...]:
    asked = _asked(filled[0].arrivals, gpus)

    def lines(what: str) -> tuple[Line, ...]:
        return tuple(
            Line(run.order, [(asked(at) * 100, v * 100) for at, v in run.series.curves[what]])
            for run in filled
        )

    return (
        Plot(
            "openb_fragmentation",
            "Fragmented GPUs, as pods fill the cluster (openb)",
            "GPUs requested so far, % of all",
            "fragmented, % of all GPUs",
            lines("useless"),
        ),
        Plot(
            "openb_given_out",
            "GPUs given out, as pods fill the cluster (openb)",
            "GPUs requested so far, % of all",
            "given out, % of all GPUs",
            lines("taken"),
        ),
    )


def _asked(arrivals: list[Arrival], gpus: int) -> Callable[[float], float]:
    """Return a function of time: the part of all GPUs that is requested by then."""
    times = [-(-each.at // BATCH_S) * BATCH_S for each in arrivals]
    sums = [0, *accumulate(each.pod.gpu_total for each in arrivals)]
    return lambda at: sums[bisect_right(times, at)] / (gpus * WHOLE)
