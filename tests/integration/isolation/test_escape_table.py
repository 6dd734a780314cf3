"""Escapes from tasks: which ones each level holds, for three users, as a table.

- own: each task has a uid of its own, the default of an agent that is root.
- account: the neighbour, the agent and the task that tries have one account, such as with an agent
  that is not root.
- root: all of them are root (`--task-user root`).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from croupier.agent.isolation.process import landlock_version
from croupier.agent.shim.build import Shim, prepare_shim
from croupier.agent.unix_user import UnixUser, find_user
from croupier.model.errors import InvalidRequest
from tests.harness.debian import NoProgram, program, unavailable
from tests.harness.escape_tries import LEVELS, Tries, compiled_escapes, decoys

IS_ROOT = os.geteuid() == 0
OWN = tuple(UnixUser("task", uid, uid, (), is_own=True) for uid in (1_999_990, 1_999_991))
USERS = ("own", "account", "root") if IS_ROOT else ("account",)

# No level promises these: the network of the machine is shared. Flags refuse them.
NETWORK = {"connect-port", "bind-port"}
# What the machine shows to all its users.
SHARED = {"see-neighbour", "unix-socket", "shared-memory", "dev-shm"}
# Files of one account belong to all its processes.
ACCOUNT = {
    "read-sandbox", "write-sandbox", "hard-link", "write-checkpoint", "descriptors-of-neighbour",
    "limits-of-neighbour",
}  # fmt: skip
# Files that belong to root, some of which control the machine.
ROOT = {
    "leave-group", "limit-of-group", "write-etc", "passwords", "core-pattern", "kernel-settings",
    "raw-disk", "sysrq",
}  # fmt: skip
OPEN = {"own": SHARED, "account": SHARED | ACCOUNT, "root": SHARED | ACCOUNT | ROOT}
# These escape only where the machine has what they try.
PERHAPS = {"leave-group", "limit-of-group", "core-pattern", "kernel-settings", "raw-disk", "sysrq"}
# What a kernel or a container may lack, or no root needs.
UNTRIED = PERHAPS | {
    "load-module", "kexec", "io-uring", "bpf", "key-rings", "release-agent", "terminal-input",
    "setuid-program", "raise-limit",
}  # fmt: skip
# What Landlock 6 holds at the levels process and cgroup, where the user alone does not.
BY_LANDLOCK_6 = {"signal-neighbour", "signal-shim", "signal-agent"}


def expected(user: str, level: str) -> set[str]:
    """Return what escapes."""
    if level == "namespaces":
        has_abstract = landlock_version() < 6
        return NETWORK | ({"abstract-socket"} if has_abstract else set())
    if level == "container":
        return NETWORK | {"abstract-socket"}
    escaping = NETWORK | OPEN[user]
    if landlock_version() < 6:
        escaping |= {"abstract-socket"} | (BY_LANDLOCK_6 if user != "own" else set())
    return escaping


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shim, Path]:
    if shutil.which("cc") is None:
        unavailable(NoProgram("there is no C compiler"))
    folder = tmp_path_factory.mktemp("escapes")
    return prepare_shim(folder), compiled_escapes(folder)


async def tried(
    programs: tuple[Shim, Path], folder: Path, level: str, user: str, *, is_command: bool = False
) -> dict[str, str]:
    """Return `held` or `escaped` by try; skip the test if the machine lacks the level."""
    nobody = find_user("nobody") if IS_ROOT else None
    users = {"own": OWN, "account": (nobody, nobody), "root": (None, None)}[user]
    owner = nobody.uid if nobody is not None and user == "account" else os.geteuid()
    work = folder / "work"
    work.mkdir(mode=0o711)
    try:
        tries = Tries(level, work, programs[0])
    except InvalidRequest as reason:
        unavailable(NoProgram(str(reason)))
    try:
        with decoys(work, programs[1], owner) as found:
            answers = await tries.run(programs[1], found, users, is_command=is_command)
    finally:
        await tries.close()
    assert len(answers) >= 40
    assert set(answers.values()) <= {"held", "escaped"}
    return answers


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("level", [level for level in LEVELS if level != "none"])
async def test_each_level_holds_what_its_table_says(
    programs: tuple[Shim, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    user: str,
) -> None:
    if level == "namespaces":
        monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    answers = await tried(programs, tmp_path, level, user)
    escaped = {name for name, answer in answers.items() if answer == "escaped"}
    may = expected(user, level) | (PERHAPS if user == "account" and not IS_ROOT else set())
    if level == "process":
        # There are no groups to leave.
        may -= {"leave-group", "limit-of-group"}
    assert escaped - may == set(), "these are held in the table"
    assert may - escaped - PERHAPS == set(), "these escape in the table"


@pytest.mark.parametrize(
    ("level", "user"), [("cgroup", USERS[0]), ("namespaces", USERS[-1]), ("container", USERS[-1])]
)
async def test_a_command_beside_a_task_escapes_no_more_than_the_task(
    programs: tuple[Shim, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    user: str,
) -> None:
    if level == "namespaces":
        monkeypatch.setenv("PATH", str(program("bwrap").parent), prepend=os.pathsep)
    answers = await tried(programs, tmp_path, level, user, is_command=True)
    escaped = {name for name, answer in answers.items() if answer == "escaped"}
    may = expected(user, level) | (PERHAPS if user == "account" and not IS_ROOT else set())
    assert escaped - may == set()


@pytest.mark.skipif(not IS_ROOT, reason="only root may do without isolation what is tried")
async def test_the_tries_succeed_without_isolation(
    programs: tuple[Shim, Path], tmp_path: Path
) -> None:
    """So what is held is held by isolation, except for what this kernel may lack."""
    answers = await tried(programs, tmp_path, "none", "root")
    held = {name for name, answer in answers.items() if answer == "held"}
    assert held - UNTRIED == set()
