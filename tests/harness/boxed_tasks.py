"""Tasks in namespaces of their own, with either shim, as root and in a user namespace."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from croupier.agent.core.events import Exited
from croupier.agent.isolation.box_view import View
from croupier.agent.isolation.bubblewrap import Bubblewrap
from croupier.agent.isolation.isolator import Isolator
from croupier.agent.isolation.layers import Layers
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
    ) -> None:
        """Start a task."""
        user = user or self.user
        launch = launch_of(name, *argv, user=user, options=options, environment=PATH)
        info = replace(
            launch.info,
            isolation=isolation,
            limits=limits,
            resources=Resources.parse(resources),
        )
        runner = self.runner
        with runner.sandboxes.create(key(name), user, again=True) as sandbox:
            launch = replace(launch, info=info, sandbox=sandbox.path)
            runner.supervisor.spawn(runner.isolation.prepare(launch), sandbox)

    async def printed(
        self, line: str, *, name: str = "t1", isolation: Isolation = IN_NAMESPACES
    ) -> str:
        """Run a shell line in a box; return what it has printed."""
        self.start(name, "/bin/sh", "-c", f"exec 2>&1; {line}", isolation=isolation)
        end = await self.runner.ended(name)
        assert isinstance(end, Exited), (end, self.runner.printed(name, "stderr"))
        return self.runner.printed(name)


@contextmanager
def passable(work: Path) -> Iterator[Path]:
    """Let all users enter a directory of a test, and no longer afterwards."""
    closed = [path for path in (work, *work.parents) if not path.stat().st_mode & 0o001]
    closed = [path for path in closed if path.stat().st_uid == os.geteuid()]
    if any(path in (Path("/"), Path("/root"), Path.home()) for path in closed):
        pytest.skip(f"other users cannot enter {work}")
    modes = {path: path.stat().st_mode & 0o777 for path in closed}
    for path in closed:
        path.chmod(modes[path] | 0o011)
    try:
        yield work
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
