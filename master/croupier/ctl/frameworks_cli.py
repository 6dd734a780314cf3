"""`croupier framework`: flags and help; the work is in `framework_change`.

Rule: what a command needs is imported within it, so that `--help` stays fast.
"""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.ctl.agents_cli import DryRunFlag, JsonFlag
from croupier.ctl.target import LOCAL, MasterFlag
from croupier.process.cli import make_app

framework = make_app(
    "framework",
    "Tear a framework down.\n\n"
    "FRAMEWORK is its id, or its name if no other framework has that: croupier frameworks lists"
    " them.",
    reads_environment=False,
)


@framework.command(name="teardown")
def framework_teardown(
    name: str,
    /,
    *,
    yes: Annotated[bool, Parameter(negative="")] = False,
    dry_run: DryRunFlag = False,
    master: MasterFlag = LOCAL,
    as_json: JsonFlag = False,
) -> None:
    """End a framework for good, and kill its tasks.

    For a framework whose program will not come back: its resources are offered to others as its
    tasks end, not only after its failover timeout. The program is refused if it returns under
    this id.

    Parameters
    ----------
    name
        Its id, or its name if no other framework has that.
    yes
        Do not ask for confirmation.
    """
    from croupier.ctl.framework_change import tear_framework_down

    tear_framework_down(master, name, is_sure=yes, dry_run=dry_run, as_json=as_json)
