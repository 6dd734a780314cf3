"""GPUs of a real cluster: packing, spreading and drawing lots, on the openb trace.

The 1,523 nodes and 8,152 pods of Alibaba's cluster-trace-gpu-v2023. In the trace's own time the
pods are a sample that never fills a hundredth of the cluster, so, as its authors do (Weng et
al., USENIX ATC 2023), pods come until nearly every GPU is asked for:

- `fill`: every pod once, in the order of the trace, one a second, and none ends. All together
  ask for 98 % of all GPUs. What is left in the wrong places, and who finds no room? (In sum about
  as many GPUs are given out in each order: large pods or many small ones go without.)
- `churn`, on every eighth node: pods drawn at random from the trace, which end after as long as
  in the trace but an hour at most, and come so fast that 0.9 of all GPUs are asked for at any
  time; for three hours. How long do pods wait?

Each class of service is a framework in a role of its own. The master is told what each pod
wants, of GPUs in sum; which GPUs of a node those are is `croupier.sim.gpus`, and an offer whose
parts do not lie together is declined for ten minutes. The master's name for them here is
`gpu-share`, because a task's `gpus` must be whole.

Pods are submitted once a minute, together, and ends are noticed once a minute: the master would
do as well with each at once, but this is a third of the work. A scale below 1 takes that part
of nodes and pods.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from random import Random
from statistics import fmean
from typing import TypeVar

from croupier.model.errors import InvalidRequest
from croupier.model.resources import Resources
from croupier.sim.cluster import Node, SimulatedCluster, make_allocator
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Simulated, Table
from croupier.sim.framework import Habits, SimulatedFramework
from croupier.sim.gpus import WHOLE, GpuNeed, GpuPlaces
from croupier.sim.gpus import GpuNode as Gpus
from croupier.sim.machine import Size
from croupier.sim.series import Series
from croupier.sim.traces.openb import WHERE, GpuNode, Pod, read_nodes, read_pods
from croupier.sim.work import Shape, Work

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
    """A pod, when it comes, and how long it runs."""

    pod: Pod
    at: float
    seconds: float


@dataclass(slots=True)
class Run:
    """What one order of agents made of the pods; `waits` are those so far, by pod."""

    order: str
    series: Series
    arrivals: list[Arrival]
    waits: list[float]
    placed: list[bool]
    simulated: Simulated

    @property
    def taken(self) -> float:
        """The part of all GPUs that pods have at the end."""
        return self.series.curves["taken"][-1][1]

    @property
    def useless(self) -> float:
        """The part of all GPUs that was fragmented, in the mean over time."""
        return self.series.mean("useless")

    @property
    def unplaced(self) -> int:
        """How many pods found no room."""
        return len(self.placed) - sum(self.placed)

    def whole_nodes(self) -> tuple[int, int]:
        """How many pods that want 8 GPUs found room, and how many there were."""
        large = [placed for each, placed in self.each() if each.pod.gpus >= 8]
        return sum(large), len(large)

    def wait(self, least: int, most: int) -> float:
        """The mean wait of pods that want from `least` to `most` GPUs, in seconds."""
        waits = [
            wait
            for each, wait in zip(self.arrivals, self.waits, strict=True)
            if least <= each.pod.gpus <= most
        ]
        return fmean(waits) if waits else 0.0

    def each(self) -> Iterator[tuple[Arrival, bool]]:
        """Pods, and whether they found room."""
        return zip(self.arrivals, self.placed, strict=True)


def fill(pods: list[Pod]) -> list[Arrival]:
    """One pod a second, for ever."""
    return [Arrival(pod, float(i), FOR_EVER_S) for i, pod in enumerate(pods)]


def churn(pods: list[Pod], gpus: int, seed: int) -> list[Arrival]:
    """Pods by lot, as fast as asks for `LOAD` times so many GPUs in the mean."""
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
) -> Run:
    """Have pods come, and run on until the last has come."""
    cluster = SimulatedCluster(
        (_node(node) for node in nodes),
        make_allocator(order=order, seed=seed, scarce=NAME),
        seed,
        tick_s=BATCH_S,
    )
    places = _places(cluster, nodes, [each.pod for each in arrivals])
    # One of a shape in an offer: what is left of a larger one would be refused with it.
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
    now = cluster.now
    waits = [(now if w.started_at is None else w.started_at) - w.submitted_at for w in works]
    placed = [work.started_at is not None for work in works]
    return Run(order, series, arrivals, waits, placed, cluster.simulated)


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


class Openb:
    """The experiment."""

    name = "openb"
    expected = (
        "The openb trace of 1,523 nodes with 6,212 GPUs: agents in the order of packing, of lots\n"
        "and of spreading. Packing leaves the least of the free GPUs fragmented and keeps whole\n"
        "nodes for the pods that want 8 GPUs; spreading breaks into every node, and these wait."
    )

    def run(self, options: Options, progress: Progress) -> Result:
        """Fill the cluster, and keep it busy, in each order.

        Raises:
            InvalidRequest: if there is no trace, or it is malformed.
        """
        if options.data is None:
            raise InvalidRequest(f"--data is missing. {WHERE}")
        nodes = _part(read_nodes(options.data), options.scale)
        pods = _part(read_pods(options.data), options.scale)
        some = nodes[::CHURN_NODES]
        gpus = sum(node.gpus for node in some)
        if not gpus:
            raise InvalidRequest("the nodes have too few GPUs for this experiment")
        filled, churned = [], []
        for number, order in enumerate(ORDERS):
            begun = number / len(ORDERS)

            def tell(done: float, begun: float = begun, order: str = order) -> None:
                progress(begun + done / len(ORDERS), order)

            filled.append(
                run_order(order, nodes, fill(pods), options.seed, lambda d: tell(d * 0.8))
            )
            churned.append(
                run_order(
                    order,
                    some,
                    churn(pods, gpus, options.seed),
                    options.seed,
                    lambda d: tell(0.8 + d * 0.2),
                )
            )
        return report(filled, churned, sum(node.gpus for node in nodes))


T = TypeVar("T")


def _part(items: list[T], scale: float) -> list[T]:
    """Evenly out of the whole list: that part of it."""
    if scale >= 1:
        return items
    return [items[int(i / scale)] for i in range(int(len(items) * scale))]


def report(filled: list[Run], churned: list[Run], gpus: int) -> Result:
    """Tables, plots and checks, of runs in the order of `ORDERS`."""
    asked = sum(each.pod.gpu_total for each in filled[0].arrivals) / WHOLE
    fill_rows = tuple(
        (
            run.order,
            f"{run.taken:.1%}",
            f"{run.useless:.1%}",
            run.unplaced,
            "{} of {}".format(*run.whole_nodes()),
        )
        for run in filled
    )
    churn_rows = tuple(
        (
            run.order,
            f"{run.series.mean('taken', CHURN_S / 3):.1%}",
            f"{run.useless:.1%}",
            round(run.wait(0, 0), 1),
            round(run.wait(1, LARGE - 1), 1),
            round(run.wait(LARGE, 1000), 1),
        )
        for run in churned
    )
    return Result(
        _checks(filled, churned),
        (
            Table(
                "openb_fill",
                ("order", "GPUs given out", "fragmented (mean)", "pods without room", "8-GPU pods"),
                fill_rows,
            ),
            Table(
                "openb_churn",
                (
                    "order",
                    "GPUs in use",
                    "fragmented (mean)",
                    "wait without GPU, s",
                    "wait for 1-2 GPUs, s",
                    "wait for 4-8 GPUs, s",
                ),
                churn_rows,
            ),
        ),
        _plots(filled, gpus),
        (
            f"fill: {len(filled[0].arrivals)} pods ask for {asked:.0f} of {gpus} GPUs",
            f"churn: {len(churned[0].arrivals)} pods; {LOAD:.0%} of GPUs asked for in the mean",
        ),
        sum((run.simulated for run in (*filled, *churned)), Simulated(0, 0)),
    )


def _checks(filled: list[Run], churned: list[Run]) -> tuple[Check, ...]:
    pack, lots, spread = filled
    fragmented = ", ".join(f"{run.order} {run.useless:.1%}" for run in filled)
    waits = [run.wait(LARGE, 1000) for run in churned]
    return (
        Check(
            "fill: GPUs that are free and of no use, in the mean",
            "least when packing",
            fragmented,
            pack.useless < min(lots.useless, spread.useless),
        ),
        Check(
            "fill: pods that want 8 GPUs and found a node",
            "most when packing, nine in ten or more; when spreading less than half",
            ", ".join("{} {} of {}".format(run.order, *run.whole_nodes()) for run in filled),
            _whole(pack) >= max(0.9, _whole(lots)) and _whole(spread) < 0.5,
        ),
        Check(
            "churn: mean wait of pods that want 4 or 8 GPUs",
            "less when packing than when spreading",
            ", ".join(f"{run.order} {w:.0f} s" for run, w in zip(churned, waits, strict=True)),
            waits[0] < waits[2],
        ),
    )


def _whole(run: Run) -> float:
    placed, of_all = run.whole_nodes()
    return placed / of_all if of_all else 1.0


def _plots(filled: list[Run], gpus: int) -> tuple[Plot, ...]:
    asked = _asked(filled[0].arrivals, gpus)

    def lines(what: str) -> tuple[Line, ...]:
        return tuple(
            Line(run.order, [(asked(at) * 100, v * 100) for at, v in run.series.curves[what]])
            for run in filled
        )

    return (
        Plot(
            "openb_fragmentation",
            "Free GPUs that are of no use, as pods fill the cluster (openb)",
            "GPUs asked for so far, % of all",
            "fragmented, % of all GPUs",
            lines("useless"),
        ),
        Plot(
            "openb_given_out",
            "GPUs given out, as pods fill the cluster (openb)",
            "GPUs asked for so far, % of all",
            "given out, % of all GPUs",
            lines("taken"),
        ),
    )


def _asked(arrivals: list[Arrival], gpus: int) -> Callable[[float], float]:
    """The part of all GPUs that is asked for by a time."""
    times = [-(-each.at // BATCH_S) * BATCH_S for each in arrivals]
    sums = [0, *accumulate(each.pod.gpu_total for each in arrivals)]
    return lambda at: sums[bisect_right(times, at)] / (gpus * WHOLE)


EXPERIMENT = Openb()
