"""Pools under churn: which policies keep the entitlements of a tree.

Three kinds of trees: the lecture's two (one in which a sibling's memory makes a pool look
rich, one whose weights cannot be multiplied out), and random ones with complementary siblings.
Each is filled; then clients are drained and tasks end at random, and the policy allocates the freed
resources. At the end every node is compared with its entitlements: W, the product of weights, and
E, by weights when siblings need different resources.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from croupier.lab.churn import RULES, Churn, ChurnPlan, Tally, churned, random_plan
from croupier.sim.experiment import Check, Line, Options, Plot, Progress, Result, Table

EXPECTED = (
    "Judging a pool by its own share (naive) starves clients; multiplying weights out\n"
    "(collapsed) breaks the promise to a pool; min-satisfaction by weights keeps what weights\n"
    "promise, but drifts below what complementary siblings are entitled to. Min-satisfaction\n"
    "by entitlement, the engine's policy, leaves no node below either promise; neither does\n"
    "H-DRF, which it matches."
)

COMPLEMENTARY: Final = ChurnPlan(
    "complementary",
    (100, 100),
    {"A": 1, "B": 1, "B/B1": 1, "B/B2": 1},
    {"A": (1, 0), "B/B1": (1, 0), "B/B2": (0, 1)},
)
WEIGHTED: Final = ChurnPlan(
    "weighted",
    (300, 300, 300),
    {
        "P1": 30,
        "P1/research": 20,
        "P1/production": 80,
        "P1/production/prod1": 50,
        "P1/production/prod2": 50,
        "P2": 20,
        "P3": 50,
        "P3/a": 30,
        "P3/b": 70,
    },
    {
        "P1/research": (1, 0, 0),
        "P1/production/prod1": (0, 1, 0),
        "P1/production/prod2": (0, 0, 1),
        "P2": (1, 1, 1),
        "P3/a": (1, 1, 1),
        "P3/b": (1, 1, 1),
    },
)
RANDOM_TREES: Final = 16
STEPS: Final = 600
FINISHES: Final = 60
# H-DRF by its definition reads the whole tree for each task, so it gets fewer random trees.
SLOW: Final = "H-DRF"
SLOW_TREES: Final = 3
# Nodes below W and below E over all trees: none, or some.
HAS_BELOW: Final[dict[str, tuple[bool, bool]]] = {
    "naive HDRF": (True, True),
    "collapsed weights": (True, True),
    "min-sat(weights)": (False, True),
    "min-sat(entitlement)": (False, False),
    "H-DRF": (False, False),
}
# Tasks of B/B1 in the complementary tree after many of its tasks have ended.
LEFT_TO_B1: Final = {
    "naive HDRF": 0,
    "collapsed weights": 33,
    "min-sat(weights)": 33,
    "min-sat(entitlement)": 50,
    "H-DRF": 50,
}


@dataclass(frozen=True, slots=True)
class _Row:
    policy: str
    trees: str
    tally: Tally


CELLS: Final[dict[str, Callable[[_Row], object]]] = {
    "policy": lambda row: row.policy,
    "trees": lambda row: row.trees,
    "nodes": lambda row: row.tally.nodes,
    "below W": lambda row: row.tally.below_w,
    "below E": lambda row: row.tally.below_e,
    "worst u/W": lambda row: round(row.tally.worst_w, 2),
    "worst u/E": lambda row: round(row.tally.worst_e, 2),
}


def run(options: Options, progress: Progress) -> Result:
    """Run the experiment; see the module."""
    chance = random.Random(options.seed)
    random_trees = [random_plan(chance, f"random {i}") for i in range(RANDOM_TREES)]
    rows: list[_Row] = []
    for number, (policy, make_rule) in enumerate(RULES.items()):
        trees = random_trees[:SLOW_TREES] if policy == SLOW else random_trees
        done = 0
        for kind, plans in (
            (COMPLEMENTARY.name, [COMPLEMENTARY]),
            (WEIGHTED.name, [WEIGHTED]),
            ("random", trees),
        ):
            tally = Tally()
            for index, plan in enumerate(plans):
                chance = random.Random(f"{options.seed} {index}")
                tally.add(plan, churned(plan, make_rule, chance, steps=STEPS))
                done += 1
                progress((number + done / (2 + len(trees))) / len(RULES), policy)
            rows.append(_Row(policy, kind, tally))
    lines = _drained()
    return Result(
        checks=(*_checks(rows), *_ends(lines)),
        tables=(Table.of("hierarchy", rows, CELLS),),
        plots=(_plot(lines),),
        notes=tuple(_names_below(rows)),
    )


def _checks(rows: list[_Row]) -> list[Check]:
    checks = []
    for policy, (loses_w, loses_e) in HAS_BELOW.items():
        mine = [row.tally for row in rows if row.policy == policy]
        nodes = sum(tally.nodes for tally in mine)
        for promise, loses, below in (
            ("W", loses_w, sum(tally.below_w for tally in mine)),
            ("E", loses_e, sum(tally.below_e for tally in mine)),
        ):
            checks.append(
                Check(
                    f"{policy}: nodes that end below {promise}",
                    "some" if loses else "none",
                    f"{below} of {nodes}",
                    (below > 0) == loses,
                )
            )
    return checks


def _names_below(rows: list[_Row]) -> list[str]:
    """List the nodes of the lecture's trees that are below W."""
    return [
        f"{row.policy}, {row.trees} tree: below W are {', '.join(row.tally.names)}"
        for row in rows
        if row.tally.names and row.trees != "random"
    ]


def _drained() -> dict[str, list[int]]:
    """Return the tasks of B/B1 after each end of one of them, by policy."""
    found = {}
    for policy, make_rule in RULES.items():
        churn = Churn(COMPLEMENTARY, make_rule, random.Random(0))
        client = churn.filling.forest.by_path["B/B1"]
        counts = [client.tasks]
        for _ in range(FINISHES):
            churn.end_one(client.path)
            counts.append(client.tasks)
        found[policy] = counts
    return found


def _ends(lines: dict[str, list[int]]) -> list[Check]:
    return [
        Check(
            f"{policy}: tasks of B/B1 after {FINISHES} of them ended, of 50",
            f"{LEFT_TO_B1[policy]}, within 1",
            str(counts[-1]),
            abs(counts[-1] - LEFT_TO_B1[policy]) <= 1,
        )
        for policy, counts in lines.items()
    ]


def _plot(lines: dict[str, list[int]]) -> Plot:
    return Plot(
        "hierarchy-drained",
        "A pool whose other child uses another resource: tasks of B/B1",
        "tasks of B/B1 that ended",
        "tasks of B/B1 that run",
        tuple(
            Line(policy, [(float(i), float(count)) for i, count in enumerate(counts)])
            for policy, counts in lines.items()
        ),
        is_step=True,
    )
