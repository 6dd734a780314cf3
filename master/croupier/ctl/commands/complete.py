"""`croupier complete`, which completion calls. A module of its own, so that it starts fast."""

from __future__ import annotations

from typing import Literal

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.ctl.app import app


@app.command(show=False)
def complete(
    kind: Literal["agents", "frameworks", "tasks", "roles"],
    prefix: str = "",
    /,
    *,
    master: MasterFlag = LOCAL,
) -> None:
    """Print ids that begin with PREFIX, for the scripts of `croupier completion`.

    Parameters
    ----------
    kind
        What to look for.
    prefix
        What was typed.
    """
    from croupier.ctl.completion.ids import id_lines

    for line in id_lines(master, kind, prefix):
        print(line)
