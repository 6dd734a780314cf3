"""Tasks in namespaces of their own, with either shim, as root and in a user namespace."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from croupier.agent.core.events import Exited
from croupier.agent.isolation.bubblewrap import Bubblewrap, View
from croupier.agent.isolation.isolator import Isolator, Layers
from croupier.agent.isolation.namespaces import Namespaces
from croupier.agent.shim.build import Shim
from croupier.agent.unix_user import UnixUser, find_user
from croupier.model.isolation import NO_LIMITS, Feature, Isolation, Limits
from croupier.model.resources import Resources
from tests.harness.debian import program
from tests.harness.supervisor_fixture import PATH, TaskRunner, key, launch_of

IN_NAMESPACES = Isolation(namespaces=True)
NO_NETWORK = Isolation(no_network=True)
FEATURES = frozenset({Feature.NAMESPACES, Feature.NO_NETWORK})


class Boxes:
    """Starts tasks in boxes below a directory that all users can enter."""

    def __init__(
        self, work: Path, shim: Shim, *, by_root: bool, others: tuple[Isolator, ...] = ()
    ) -> None:
        """Isolate by namespaces and by `others`, which come first."""
        # A box of a root agent has a task of its own user; else both are the same one.
        is_root = os.geteuid() == 0
        self.user: UnixUser | None = find_user("nobody") if is_root else None
        self.tool = Bubblewrap(str(program("bwrap")), by_root, shim)
        self.view = View((Path("/opt"),), work)
        boxes = Namespaces(self.tool, self.view, NO_LIMITS, FEATURES, are_all=False)
        self.runner = TaskRunner(work, shim, isolation=Layers((*others, boxes)))

    def start(
        self,
        name: str,
        *argv: str,
        isolation: Isolation = IN_NAMESPACES,
        resources: str = "",
        limits: Limits = NO_LIMITS,
        options: tuple[str, ...] = (),
        user: UnixUser | None = None,
        read_only: tuple[str, ...] = (),
        shared: tuple[str, ...] = (),
    ) -> None:
        """Start a task."""
        user = user or self.user
        launch = launch_of(name, *argv, user=user, options=options, environment=PATH)
        info = replace(
            launch.info, isolation=isolation, limits=limits, resources=Resources.parse(resources)
        )
        runner = self.runner
        with runner.sandboxes.create(key(name), user, again=True) as sandbox:
            launch = replace(launch, info=info, sandbox=sandbox.path, read_only=read_only)
            launch = replace(launch, shared=shared)
            runner.supervisor.spawn(runner.isolation.prepare(launch), sandbox)

    async def printed(
        self, line: str, *, name: str = "t1", isolation: Isolation = IN_NAMESPACES
    ) -> str:
        """Run a shell line in a box; return what it has printed."""
        self.start(name, "/bin/sh", "-c", f"exec 2>&1; {line}", isolation=isolation)
        end = await self.runner.ended(name)
        assert isinstance(end, Exited), (end, self.runner.printed(name, "stderr"))
        return self.runner.printed(name)


def sleepers(seconds: str) -> list[str]:
    """Return the processes that sleep for this time."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(path.parent.name)
    return found
