"""`subprocess.Popen` that forks Croupier's programs from a loaded interpreter.

Rule: a program starts as usual unless a fork has the same effect. So what a test asks of the
interpreter itself, such as `PYTHONHASHSEED`, is never lost.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.harness.forked_start.template import Template

# Starts that are not worth a loaded interpreter, which takes as long to start as two daemons.
COLD_STARTS: Final = 2
# It starts all daemons of a cluster.
LOCAL: Final = ["croupier.ctl", "local"]
BIN: Final = Path(sys.executable).parent
SCRIPTS: Final = {
    str(BIN / "croupier"): "croupier.ctl",
    str(BIN / "croupier-agent"): "croupier.agent",
    str(BIN / "croupier-master"): "croupier.master",
}
# Programs of tests are loaded in the fork.
MODULES: Final = frozenset(
    {*SCRIPTS.values(), "tests.chaos.real.mutants", "tests.chaos.real.workload"}
)
# A fork finds what is there, as the template is started there.
REPOSITORY: Final = str(Path(__file__).resolve().parents[3])
# Interpreters read these at their start; a fork follows them too.
FOLLOWED: Final = frozenset({"PYTHONFAULTHANDLER", "PYTHONUNBUFFERED"})
READ_AT_START: Final = ("PYTHON", "LC_", "LANG", "MALLOC_", "LD_", "GRPC_", "COVERAGE_")
# Further arguments of `_execute_child`, with the values that a fork can follow.
PLAIN: Final = {
    "executable": (None,), "preexec_fn": (None,), "pass_fds": ((),), "close_fds": (True,),
    "shell": (False,), "gid": (None,), "gids": (None,), "uid": (None,), "umask": (-1,),
    "process_group": (-1, None), "restore_signals": (True,),
}  # fmt: skip
NAMES: Final = (
    "args", "executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo",
    "creationflags", "shell", "p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite",
    "restore_signals", "gid", "gids", "uid", "umask", "start_new_session", "process_group",
)  # fmt: skip

_execute_child: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]


class Forks:
    """Forks the programs that can be forked.

    Attributes:
        starts: how many of these there were.
    """

    def __init__(self, template: Template | None = None) -> None:
        """Fork from `template`, or later from one of its own."""
        self.starts = 0 if template is None else COLD_STARTS
        self._template = template

    def install(self) -> None:
        """Make every later `Popen` of this process use forks, unless `FORKED_STARTS` is 0."""
        if os.environ.get("FORKED_STARTS") == "0":
            return
        forks = self

        def execute_child(process: Any, *values: Any) -> None:
            is_known = len(values) == len(NAMES)
            if not is_known or not forks.start(process, dict(zip(NAMES, values, strict=True))):
                _execute_child(process, *values)

        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]

    def start(self, process: Any, given: dict[str, Any]) -> bool:
        """Fork the program of `process`; return False if it must start as usual."""
        argv = argv_of(given)
        if argv is None or not is_plain(given):
            return False
        self.starts += 1
        if self.starts <= COLD_STARTS and argv[:2] != LOCAL:
            return False
        if self._template is None:
            self._template = Template()
        inherited = (given["p2cread"], given["c2pwrite"], given["errwrite"])
        process.pid = self._template.fork(
            argv,
            None if given["cwd"] is None else os.fspath(given["cwd"]),
            dict(os.environ if given["env"] is None else given["env"]),
            [default if fd == -1 else fd for default, fd in enumerate(inherited)],
            is_session=bool(given["start_new_session"]),
        )
        process._child_created = True
        process._close_pipe_fds(*(given[name] for name in NAMES[10:16]))
        return True

    def close(self) -> None:
        """End the loaded interpreter."""
        if self._template is not None:
            self._template.close()


def argv_of(given: dict[str, Any]) -> list[str] | None:
    """Return the module and the arguments of one of Croupier's programs; None for others."""
    if not isinstance(given["args"], list | tuple):
        return None
    words = [os.fspath(word) for word in given["args"]]
    if not all(isinstance(word, str) for word in words):
        return None
    if words[:2] == [sys.executable, "-m"] and words[2:3] and words[2] in MODULES:
        return words[2:]
    if words[:1] and words[0] in SCRIPTS:
        return [SCRIPTS[words[0]], *words[1:]]
    return None


def is_plain(given: dict[str, Any]) -> bool:
    """Return whether a fork can follow the arguments and the environment."""
    if any(given[name] not in values for name, values in PLAIN.items()):
        return False
    env = os.environ if given["env"] is None else given["env"]
    if not all(isinstance(word, str) for pair in env.items() for word in pair):
        return False
    names = {name for name in {*env, *os.environ} if name.startswith(READ_AT_START)} - FOLLOWED
    changed = {name for name in names if env.get(name) != os.environ.get(name)}
    return not changed or (changed == {"PYTHONPATH"} and env["PYTHONPATH"] == REPOSITORY)
