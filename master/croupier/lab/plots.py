"""PNG files of plots, when matplotlib is installed (`pip install croupier[lab]`)."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from croupier.sim.experiment import Plot, Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def can_plot() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(result: Result, folder: Path) -> list[Path]:
    """Write one PNG per plot to `folder`, and return the files. Needs matplotlib.

    Raises:
        OSError: if the folder cannot be written.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    written = []
    for plot in result.plots:
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        _draw(plot, axes)
        path = folder / f"{plot.name}.png"
        figure.savefig(path, dpi=120)
        plt.close(figure)
        written.append(path)
    return written


def _draw(plot: Plot, axes: Axes) -> None:
    width = 0.8 / max(len(plot.lines), 1)
    for index, line in enumerate(plot.lines):
        xs = [x for x, _ in line.points]
        ys = [y for _, y in line.points]
        if plot.is_bars:
            shift = (index - (len(plot.lines) - 1) / 2) * width
            bars = axes.bar([x + shift for x in xs], ys, width, label=line.label)
            axes.bar_label(bars, fmt="%.3g", fontsize=8)
        elif plot.is_step:
            axes.step(xs, ys, where="post", label=line.label)
        else:
            axes.plot(xs, ys, label=line.label)
    if plot.ticks:
        axes.set_xticks(range(len(plot.ticks)), plot.ticks)
    axes.set_title(plot.title)
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.grid(visible=True, alpha=0.3)
    if all(y >= 0 for line in plot.lines for _, y in line.points):
        # Readers compare the heights of bars and shares.
        axes.set_ylim(bottom=0)
    if len(plot.lines) > 1:
        axes.legend()
