"""`croupier complete`, which completion calls for ids that begin with what was typed.

Rule: fast, and silent. Without a quick answer there are none. No id has a character that a shell
gives a meaning to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final, Literal

from croupier.cli.connection import connected
from croupier.cli.flags import LOCAL, MasterFlag, Target
from croupier.cli.terminal import View
from croupier.ctl.app import app
from croupier.ctl.lists import AGENTS, FRAMEWORKS, ROLES, TASKS, ListKind, first_page
from croupier.ctl.views.task import is_live
from croupier.model.errors import CroupierError

TIMEOUT_S: Final = 1.5
MOST: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/@+:-]+")

# The list, the key of its id, and what is shown beside it.
KINDS: Final[dict[str, tuple[ListKind, str, Callable[[View], str]]]] = {
    "agents": (AGENTS, "agent_id", lambda view: str(view["hostname"])),
    "frameworks": (FRAMEWORKS, "framework_id", lambda view: str(view["name"])),
    "tasks": (TASKS, "task_id", lambda view: f"{view['state']} {view['name']}"),
    "roles": (ROLES, "role", lambda _: ""),
}


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
    for line in id_lines(master, kind, prefix):
        print(line)


def id_lines(target: Target, kind: str, prefix: str) -> list[str]:
    """Return the ids of a kind that begin with `prefix`, each with a tab and a description."""
    try:
        return asyncio.run(_asked(target, kind, prefix))
    except (CroupierError, TimeoutError, OSError):
        return []


async def _asked(target: Target, kind: str, prefix: str) -> list[str]:
    listed, key, describe = KINDS[kind]
    async with asyncio.timeout(TIMEOUT_S), connected(target) as master:
        found = await first_page(master, listed, MOST, text=prefix)
    return [
        f"{each[key]}\t{re.sub(r'[^A-Za-z0-9._ -]', '', describe(each))}".rstrip()
        for each in sorted(found, key=lambda each: "state" in each and not is_live(each))
        if each[key].startswith(prefix) and _PLAIN.fullmatch(each[key])
    ]
