"""The table of experiments: one row each, imported on demand."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final, cast

from croupier.sim.experiment import Experiment


@dataclass(frozen=True, slots=True)
class ExperimentEntry:
    """An experiment's module, and a one-line summary.

    Attributes:
        module: holds the experiment as `EXPERIMENT`.
        needs_data: whether it reads trace files, from `--data`.
        scale: the help of `--scale`, if it has a meaning.
    """

    module: str
    summary: str
    needs_data: bool = False
    scale: str = ""

    def load(self) -> Experiment:
        """Import the experiment."""
        return cast("Experiment", import_module(self.module).EXPERIMENT)


EXPERIMENTS: Final[dict[str, ExperimentEntry]] = {
    "drf-paper-fig8": ExperimentEntry(
        "croupier.lab.experiments.fig8",
        "Figure 8 of the DRF paper: shares of two jobs whose demands change",
    ),
    "drf-paper-fig9-12": ExperimentEntry(
        "croupier.lab.experiments.fig9_12",
        "Figures 9 to 12 of the DRF paper: jobs done and response with DRF, slots and CPU fairness",
    ),
    "facebook": ExperimentEntry(
        "croupier.lab.experiments.facebook",
        "Section 7.3 of the DRF paper: MapReduce jobs at Facebook, DRF against slots",
        needs_data=True,
        scale=(
            "Hours of the trace to run. The default, one busy hour, has 218,000 tasks and takes\n"
            "minutes. 19 is the whole trace, the paper's day: 3.9 million tasks, about an hour."
        ),
    ),
    "openb": ExperimentEntry(
        "croupier.lab.experiments.openb",
        "Agent orders on Alibaba's GPU nodes and pods: fragmentation and waits",
        needs_data=True,
        scale="Fraction of the nodes and pods to run; 1 is all of them, and takes minutes.",
    ),
    "lined-up": ExperimentEntry(
        "croupier.lab.experiments.lined_up",
        "Short tasks lined up at agents: throughput, and the wait of a framework that comes later",
    ),
    "properties": ExperimentEntry(
        "croupier.lab.experiments.properties",
        "Table 2 of the DRF paper: search for violations of each property by each policy",
    ),
    "hierarchy": ExperimentEntry(
        "croupier.lab.experiments.hierarchy",
        "Policies on a tree of pools under churn: which ones meet the entitlements",
    ),
}
