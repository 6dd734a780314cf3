"""Table 2 of the DRF paper: eight properties of three policies.

The experiment searches random instances, the same for every policy, for counterexamples. It also
tries those that the paper prints.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from croupier.lab.solvers import continuous
from croupier.lab.solvers import properties as of
from croupier.lab.solvers.market import ceei
from croupier.lab.solvers.properties import Instance, Policy, Property, short
from croupier.sim.experiment import Check, Options, Progress, Result, Table

EXPECTED = (
    "Table 2 of Ghodsi et al., NSDI 2011: asset fairness lacks sharing incentive and bottleneck"
    " fairness,\nCEEI lacks strategy-proofness and population monotonicity, DRF has both pairs;"
    " none of them\nis monotone in resources, and all have the rest."
)

POLICIES: Final[tuple[tuple[str, Policy], ...]] = (
    ("asset", continuous.asset),
    ("CEEI", ceei),
    ("DRF", continuous.drf),
)
# The policies that have each property, as printed in the paper.
PROPERTIES: Final[tuple[tuple[str, Property, str], ...]] = (
    ("sharing incentive", of.has_sharing_incentive, "CEEI DRF"),
    ("strategy-proofness", of.is_strategy_proof, "asset DRF"),
    ("envy-freeness", of.is_envy_free, "asset CEEI DRF"),
    ("Pareto efficiency", of.is_efficient, "asset CEEI DRF"),
    ("single resource fairness", of.is_fair_in_one, "asset CEEI DRF"),
    ("bottleneck fairness", of.is_fair_in_bottleneck, "CEEI DRF"),
    ("population monotonicity", of.is_monotone_in_population, "asset DRF"),
    ("resource monotonicity", of.is_monotone_in_resources, ""),
)
# Instances tried per policy; the market takes longer to clear.
TRIED: Final = {"asset": 800, "CEEI": 200, "DRF": 800}


def run(options: Options, progress: Progress) -> Result:
    """Run the experiment; see the module."""
    rows: list[tuple[object, ...]] = []
    checks: list[Check] = []
    counterexamples: list[tuple[object, ...]] = []
    cells = len(PROPERTIES) * len(POLICIES)
    for index, (title, has, holders) in enumerate(PROPERTIES):
        row: list[object] = [title]
        for place, (name, policy) in enumerate(POLICIES):
            progress((index * len(POLICIES) + place) / cells, f"{title}, {name}")
            tried, counterexample = search(has, policy, options.seed, TRIED[name])
            row += ["yes" if counterexample is None else "no", tried]
            got = f"held on {tried} instances"
            if counterexample is not None:
                counterexamples.append((name, title, counterexample))
                got = f"failed on instance {tried}"
            should = name in holders.split()
            expected = "yes" if should else "no"
            passed = (counterexample is None) == should
            checks.append(Check(f"{name}: {title}", expected, got, passed))
        rows.append(tuple(row))
    checks += paper_counterexamples()
    columns = ("property", *(c for name, _ in POLICIES for c in (name, f"{name} tried")))
    return Result(
        checks=tuple(checks),
        tables=(
            Table("properties", columns, tuple(rows)),
            Table(
                "counterexamples", ("policy", "property", "counterexample"), tuple(counterexamples)
            ),
        ),
    )


def search(has: Property, policy: Policy, seed: int, most: int) -> tuple[int, str | None]:
    """Try at most `most` instances; return how many were tried, and the counterexample, if any."""
    chance = random.Random(seed)
    for tried in range(1, most + 1):
        instance = of.generate(chance)
        wrong = has(policy, instance, chance)
        if wrong is not None:
            return tried, f"{instance}: {wrong}"
    return most, None


def paper_counterexamples() -> list[Check]:
    """Try the paper's counterexamples, each on the policy that it is against and on DRF."""
    asset, drf = continuous.asset, continuous.drf
    one = _instance((30, 30), (1, 3), (1, 1))
    two = _instance((21, 21), (3, 2), (4, 1))
    five = _instance((100, 100), (4, 1), (1, 16), (16, 1))
    return [
        _against("Theorem 1: asset", asset, of.has_sharing_incentive, one, fails=True),
        _against("Theorem 1: DRF", drf, of.has_sharing_incentive, one, fails=False),
        _bottleneck("Theorem 2: asset", asset, two, fails=True),
        _bottleneck("Theorem 2: DRF", drf, two, fails=False),
        _lie("Theorem 4: CEEI", ceei, fails=True),
        _lie("Theorem 4: DRF", drf, fails=False),
        _against("Theorem 5: CEEI", ceei, of.is_monotone_in_population, five, fails=True),
        _against("Theorem 5: DRF", drf, of.is_monotone_in_population, five, fails=False),
        _more("Theorem 6: DRF", drf),
    ]


def _against(what: str, policy: Policy, has: Property, instance: Instance, *, fails: bool) -> Check:
    # These properties draw nothing at random.
    return _stated(what, instance, has(policy, instance, random.Random(0)), fails=fails)


def _bottleneck(what: str, policy: Policy, instance: Instance, *, fails: bool) -> Check:
    """Check that users whose dominant resource is 1 have half of it each."""
    tasks = instance.tasks(policy)
    half = instance.capacity[0] / 2
    parts = [x * demand[0] for x, demand in zip(tasks, instance.demands, strict=True)]
    listed = ", ".join(map(short, parts))
    wrong = None if parts == [half, half] else f"parts of resource 1 are {listed}"
    return _stated(what, instance, wrong, fails=fails)


def _lie(what: str, policy: Policy, *, fails: bool) -> Check:
    """Check what user 1 gains by claiming 8 of resource 2 where it needs 1."""
    instance = _instance((100, 100), (16, 1), (1, 2))
    honest = instance.tasks(policy)[0]
    lying = of.tasks_by_lie(policy, instance, 0, (Fraction(16), Fraction(8)))
    wrong = f"{short(honest)} tasks become {short(lying)} by the lie <16, 8>"
    return _stated(what, instance, wrong if lying > honest + of.SLACK else None, fails=fails)


def _more(what: str, policy: Policy) -> Check:
    """Check that four times resource 2 takes a sixth of the cluster from user 1."""
    instance = _instance((100, 100), (2, 1), (1, 2))
    before, after = (each.tasks(policy)[0] for each in (instance, instance.grown(1, Fraction(4))))
    wrong = f"{short(before)} tasks become {short(after)} with 4 times resource 2"
    return _stated(what, instance, wrong if after < before else None, fails=True)


def _stated(what: str, instance: Instance, wrong: str | None, *, fails: bool) -> Check:
    return Check(
        f"{what}, {instance}",
        "a counterexample" if fails else "none",
        wrong or "none",
        (wrong is not None) == fails,
    )


def _instance(capacity: Sequence[int], *demands: Sequence[int]) -> Instance:
    return Instance(
        tuple(Fraction(amount) for amount in capacity),
        tuple(tuple(Fraction(need) for need in demand) for demand in demands),
    )
