"""Runs of worlds: the outcomes of seeds, and the shrinking of failing ones."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from tests.chaos.virtual.faults import Fault
from tests.chaos.virtual.mutants import MUTANTS
from tests.chaos.virtual.world import World

# The most runs while shrinking; a world that never settles takes the longest.
MOST_TRIES = 150
SEEDS_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one seed.

    Attributes:
        violation: the violated invariant; empty if none.
        seen: what happened, by kind.
        injected: the number of effective faults by kind.
        digest: the digest of the trace, if it was traced.
    """

    seed: int
    steps: int
    happened: int
    tasks: int
    violation: str
    seen: Counter[str] = field(default_factory=Counter)
    injected: Counter[str] = field(default_factory=Counter)
    faults: tuple[Fault, ...] = ()
    digest: str = ""
    trace: tuple[str, ...] = ()


def run(
    seed: int,
    faults: Sequence[Fault] | None = None,
    traced: bool = False,
    mutant: str = "",
    only: tuple[str, ...] = (),
) -> Outcome:
    """Run one world to its end, with the bug of a `mutant` if one is named."""
    if mutant:
        with MUTANTS[mutant].applied():
            return run(seed, faults, traced, only=only)
    world = World(seed, faults, traced, only)
    violation = ""
    try:
        world.run()
    except Exception as error:
        violation = text_of(error)
    return Outcome(
        seed,
        world.steps,
        world.clock.ran,
        len(world.judge.histories),
        violation,
        world.judge.seen,
        world.injected,
        tuple(world.faults),
        world.clock.digest() if traced else "",
        tuple(world.clock.lines or ()),
    )


def text_of(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(where.filename).name}:{where.lineno}"
    return f"{type(error).__name__} at {place}: {str(error) or where.line}"


def run_all(seeds: Iterable[int], processes: int, mutant: str = "") -> Iterator[Outcome]:
    """Yield the outcomes of many seeds in order, computed by several processes.

    With a mutant, worlds have only the kinds of faults that find it soon.
    """
    one = partial(run, mutant=mutant, only=MUTANTS[mutant].kinds if mutant else ())
    if processes == 1:
        yield from map(one, seeds)
        return
    with get_context("fork").Pool(processes) as pool:
        yield from pool.imap(one, seeds, chunksize=SEEDS_AT_ONCE)


def shrunk(outcome: Outcome, mutant: str = "") -> Outcome:
    """Return the same seed with the fewest and shortest faults that violate an invariant."""
    best, tries = outcome, 0

    def fails(faults: Sequence[Fault]) -> bool:
        nonlocal best, tries
        if tries >= MOST_TRIES:
            return False
        tries += 1
        tried = run(outcome.seed, faults, mutant=mutant)
        if tried.violation:
            best = tried
        return bool(tried.violation)

    size = max(1, len(best.faults) // 2)
    while size:
        start = 0
        while start < len(best.faults):
            if not fails(best.faults[:start] + best.faults[start + size :]):
                start += size
        size //= 2
    for number, fault in enumerate(best.faults):
        for lasts in (0.1, 1.0, 5.0):
            shorter = (replace(fault, lasts=lasts),)
            rest = best.faults[:number], best.faults[number + 1 :]
            if lasts < fault.lasts and fails(rest[0] + shorter + rest[1]):
                break
    return run(outcome.seed, best.faults, traced=True, mutant=mutant)
