"""The isolator of tasks in namespaces of their own, which bubblewrap makes.

What it enforces, for tasks that ask for namespaces or for no network, and for all tasks with
`--isolation namespaces`:

- The task sees only its own processes, so it can neither signal nor trace others.
- It sees a part of the machine's files, read-only, and can write to its sandbox and to a private
  /tmp and /dev/shm; bubblewrap.py lists all of it. Unix sockets of the machine in /run, /tmp and
  /var are out of reach. A later start of the task finds nothing of an earlier one.
- It has shared memory, message queues, host name and control groups of its own.
- With `no_network`, it has a loopback interface of its own and nothing else. Else it has the
  machine's network: ports of agents and masters, and abstract Unix sockets, can be reached.

Files in /tmp and /dev/shm are in memory, which counts for the task's memory limit. Each is bounded
by half of that limit, or by 256 MiB.

An agent that is root runs bubblewrap as root, and the shim inside becomes the task's user. So tasks
need no user namespaces, and see the true owners of files. Otherwise bubblewrap runs in a user
namespace, in which the task has no capabilities and can make no further namespaces.

The shim's options that restrict a process are obeyed inside, once bubblewrap has made all mounts.
Control groups are entered before it starts, so all processes of a box are in them.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from croupier.agent.isolation.bubblewrap import Bubblewrap, View
from croupier.agent.isolation.image_tools import find_tool
from croupier.agent.isolation.isolator import Isolator, Launch, Setting, limits_of
from croupier.agent.isolation.process import ROOT_KEPT
from croupier.model.errors import InvalidRequest, Unavailable
from croupier.model.isolation import Feature, Features, Limits
from croupier.model.limits import MIB

# Options of the shim that count outside: of the processes of bubblewrap too.
_OUTSIDE: Final = ("group=", "kill=", "seccomp=", "run=")
_BOUNDING: Final = "bounding="
_TRIAL: Final = "box-"
_TMP_BYTES: Final = 256 * MIB
_LEAST_TMP_BYTES: Final = MIB
LEAST_PIDS: Final = 3


class Namespaces(Isolator):
    """Runs tasks in boxes.

    The shim kills bubblewrap, and with it the box: no process outlives process 1 of the box, which
    the shim knows. Namespaces and their mounts end with their processes. A box is in the control
    groups of its task, which measure it.
    """

    name = "namespaces"

    def __init__(
        self, tool: Bubblewrap, view: View, defaults: Limits, features: Features, *, are_all: bool
    ) -> None:
        """Use `tool`. `are_all`: box every task, and not only those that ask for it."""
        self.features = features
        self._tool, self._view, self._defaults, self._are_all = tool, view, defaults, are_all

    def prepare(self, launch: Launch) -> Launch:
        """Put bubblewrap before the task's command, and the options where they belong."""
        wanted = launch.info.isolation
        if not self._is_boxed(launch):
            return launch
        limits = limits_of(launch.info, self._defaults)
        if 0 < limits.pids < LEAST_PIDS:
            raise InvalidRequest(
                f"a task in namespaces needs a limit of at least {LEAST_PIDS} pids: bubblewrap"
                " and the first process of the box count too"
            )
        outside = tuple(each for each in launch.options if each.startswith(_OUTSIDE))
        inside = (launch.sandbox, *self._inside(launch), "--", *launch.argv)
        mem = limits.mem
        view = self._view.words(
            [launch.sandbox, *launch.shared],
            max(mem * MIB // 2000, _LEAST_TMP_BYTES) if mem else _TMP_BYTES,
            is_own_account=launch.user is None or launch.user.uid == os.geteuid(),
            further=launch.read_only,
        )
        return replace(
            launch,
            argv=self._tool.command(
                view,
                inside,
                has_network=not wanted.no_network,
                has_filter=any(each.startswith("seccomp=") for each in outside),
            ),
            user=None if self._tool.by_root else launch.user,
            options=(*outside, "boxed"),
        )

    def join(self, launch: Launch) -> Launch:
        """Enter the box; the options count inside, once the command is there."""
        if not self._is_boxed(launch):
            return launch
        user = f"user={launch.user}"
        options = [each for each in launch.options if each.startswith(_OUTSIDE)]
        options += [each for each in self._inside(launch) if each != user]
        # Bubblewrap gives that to every box.
        options += {"no-new-privs"}.difference(options)
        if not self._tool.by_root:
            options.append(f"{_BOUNDING}0")
        return replace(launch, options=tuple(options), joins=True)

    def _is_boxed(self, launch: Launch) -> bool:
        wanted = launch.info.isolation
        is_wanted = self._are_all or wanted.namespaces or wanted.no_network
        return is_wanted and not wanted.image

    def _inside(self, launch: Launch) -> Iterator[str]:
        options = [each for each in launch.options if not each.startswith(_OUTSIDE)]
        if not self._tool.by_root:
            # Bubblewrap takes all capabilities away.
            yield from (each for each in options if not each.startswith(_BOUNDING))
            return
        yield from options
        if not any(each.startswith(_BOUNDING) for each in options):
            is_root = launch.user is None or launch.user.uid == 0
            yield f"{_BOUNDING}{ROOT_KEPT if is_root else 0:x}"
        if launch.user is not None:
            yield f"user={launch.user}"


def build_namespaces(setting: Setting) -> Namespaces:
    """Return the isolator, after trials in boxes; raises Unavailable or InvalidRequest."""
    flags, work_dir = setting.flags, setting.work_dir
    for path in flags.visible_paths:
        if path.resolve().is_relative_to(work_dir.resolve()):
            raise InvalidRequest(f"--visible-paths: {path} is in the agent's work dir")
    view = View(flags.visible_paths, work_dir, setting.secrets)
    for left in work_dir.glob(f"{_TRIAL}*"):
        # Of an agent that was killed during its trial.
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_TRIAL, dir=work_dir) as directory:
        trial = Path(directory)
        # The program of the trial runs as another user.
        trial.chmod(0o711)
        tool = _working(setting, view, trial)
        features = {Feature.NAMESPACES}
        # Otherwise tasks in namespaces have the machine's network.
        with suppress(Unavailable):
            tool.try_out(_trial_view(view, trial), trial, has_network=False)
            features.add(Feature.NO_NETWORK)
    are_all = "namespaces" in flags.isolation
    return Namespaces(tool, view, flags.default_limits, frozenset(features), are_all=are_all)


def _working(setting: Setting, view: View, trial: Path) -> Bubblewrap:
    """Return the tool in the first way that works."""
    path = find_tool("bwrap")
    if not path:
        raise Unavailable("bwrap (bubblewrap) is not installed")
    first: Unavailable | None = None
    for by_root in (True, False) if os.geteuid() == 0 else (False,):
        tool = Bubblewrap(path, by_root, setting.shim)
        try:
            tool.try_out(_trial_view(view, trial), trial)
        except Unavailable as error:
            first = first or error
        else:
            return tool
    assert first is not None
    raise first


def _trial_view(view: View, trial: Path) -> tuple[str, ...]:
    return view.words((str(trial),), _LEAST_TMP_BYTES, is_own_account=True)
