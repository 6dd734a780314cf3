"""The progress bar of long runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from croupier.sim.experiment import Progress


@contextlib.contextmanager
def progress_bar() -> Iterator[Progress]:
    """Show a bar on stderr if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, text="": None  # noqa: ARG005 - the names are the protocol's
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        line = bar.add_task("", total=1.0)

        def show(done: float, text: str = "") -> None:
            bar.update(line, completed=done, description=text)

        yield show
