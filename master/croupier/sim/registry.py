"""The table of experiments: one row each, loaded when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from croupier.sim.experiment import Experiment


@dataclass(frozen=True, slots=True)
class Entry:
    """Where an experiment stands, and what it is in a line.

    Attributes:
        module: holds the experiment as `EXPERIMENT`.
        needs_data: whether it reads trace files, from `--data`.
    """

    module: str
    summary: str
    needs_data: bool = False

    def load(self) -> Experiment:
        """Import the experiment."""
        return cast("Experiment", import_module(self.module).EXPERIMENT)


EXPERIMENTS: Final[dict[str, Entry]] = {
    "properties": Entry(
        "croupier.sim.experiments.properties",
        "Table 2 of the DRF paper: which policy has which property, by search",
    ),
    "hierarchy": Entry(
        "croupier.sim.experiments.hierarchy",
        "Pools under churn: who keeps the share that the tree promises",
    ),
}
