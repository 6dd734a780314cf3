"""Tasks with uids of their own, against a neighbour, the agent and what earlier tasks have left.

Each attack runs as the uid of a task. Were it root, it would change nothing but files of the test
and processes that the test has started.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from croupier.agent.app import AgentDaemon
from croupier.agent.isolation import uid_claims
from croupier.agent.isolation.flags import TaskUserFlags
from croupier.agent.unix_user import DEFAULT_UIDS, UidRange
from croupier.model.isolation import Feature
from croupier.model.task import TaskState
from tests.harness.agent_process import AgentProcess
from tests.harness.agents import RESOURCES, running_agent
from tests.harness.eventually import eventually
from tests.harness.processes import is_running
from tests.harness.scripted_master import F, ScriptedMaster, program, shell

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

RUNNING, FINISHED, FAILED = TaskState.RUNNING, TaskState.FINISHED, TaskState.FAILED
OWN = TaskUserFlags()
TOOLS = "dd flock renice prlimit setpriv mount chown ln mv"
# A command succeeds only if it breaks out: then its name is in the output.
ATTACKS = {
    "signal-0": "kill -0 $V",
    "stop": "kill -STOP $V",
    "kill": "kill -KILL $V",
    "kill-group": "kill -KILL -$V",
    "stop-agent": "kill -STOP $AGENT",
    "stop-shim": "kill -STOP $PPID",
    "continue-shim-of-neighbour": "kill -CONT $VSHIM",
    "environ": "cat /proc/$V/environ",
    "environ-of-agent": "cat /proc/$AGENT/environ",
    "trace": "dd if=/proc/$V/mem bs=1 count=1",
    "maps": "grep -q . /proc/$V/maps",
    "root-link": "ls /proc/$V/root/",
    "cwd-link": "ls /proc/$V/cwd/",
    "descriptors": "ls /proc/$V/fd",
    "descriptors-of-shim": "ls /proc/$PPID/fd",
    "oom-score": "echo 0 >/proc/$V/oom_score_adj",
    "own-oom-score": "echo -500 >/proc/self/oom_score_adj",
    "limits": "prlimit --pid $V --nofile=1:1",
    "priority": "renice -n 19 -p $V",
    "list-sandbox": "ls $HOME/../victim",
    "read-output": "cat $HOME/../victim/stdout",
    "write-output": "echo x >>$HOME/../victim/stdout",
    "new-file": "touch $HOME/../victim/new",
    "move-sandbox": "mv $HOME/../victim $HOME/../moved",
    "replace-own-sandbox": "mv $HOME $HOME.old",
    "remove-sandbox": "rmdir $HOME/../victim",
    "open-sandbox": "chmod 777 $HOME/../victim",
    "hard-link": "ln $HOME/../victim/stdout $HOME/linked",
    "list-framework": "ls $HOME/..",
    "list-sandboxes": "ls $WORK/sandboxes",
    "list-work-dir": "ls $WORK",
    "write-work-dir": "touch $WORK/new",
    "write-sandboxes": "mkdir $WORK/sandboxes/new",
    "write-framework": "mkdir $HOME/../new",
    "checkpoint": "cat $WORK/checkpoint.log",
    "mark": "cat $WORK/checkpoint.mark",
    "write-checkpoint": "echo x >>$WORK/checkpoint.log",
    "token": "cat $WORK/token",
    "lock": "flock -n $WORK/lock true",
    "list-runs": "ls $WORK/runs",
    "write-shim": "echo x >>$(echo $WORK/shim-*)",
    "claims": "ls /run/croupier/uids",
    "take-claim": "touch /run/croupier/uids/2000001",
    "become-root": "setpriv --reuid 0 true",
    "become-nobody": "setpriv --reuid 65534 true",
    "groups": "setpriv --groups 0 true",
    "chown": "chown 0 $HOME/stdout",
    "mount": "mount -t tmpfs none $HOME",
    "cgroup": "echo 0 >/sys/fs/cgroup/cgroup.procs || echo 0 >/sys/fs/cgroup/memory/tasks",
}


@pytest.fixture
def work_dir(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Return a work dir that tasks can enter: pytest's directories are closed for them."""
    monkeypatch.setattr(uid_claims, "BASE", tmp_path / "uids")
    base = Path(tempfile.mkdtemp(prefix="croupier-test-users-"))
    base.chmod(0o711)
    yield base / "work"
    shutil.rmtree(base)


@asynccontextmanager
async def serving(
    master: ScriptedMaster, work_dir: Path, users: TaskUserFlags = OWN, **more: Any
) -> AsyncIterator[AgentDaemon]:
    async with running_agent(work_dir, master.address, users=users, **more) as agent:
        await master.agent()
        yield agent


def sandbox(work_dir: Path, task_id: str) -> Path:
    return work_dir / "sandboxes" / F / task_id


async def output(master: ScriptedMaster, work_dir: Path, task_id: str, line: str) -> str:
    """Run a task to its end; return what it printed."""
    master.launch(shell(task_id, line))
    await master.state(task_id, FINISHED)
    return (sandbox(work_dir, task_id) / "stdout").read_text()


async def test_each_task_has_a_uid_without_account_and_groups(
    master: ScriptedMaster, work_dir: Path
) -> None:
    async with serving(master, work_dir) as agent:
        assert Feature.USERS in agent.state.features
        register = (await master.agent()).register
        assert register is not None
        assert register.default_user == "(own)"
        line = 'id -u; id -g; id -G; echo $USER $LOGNAME; stat -c "%u %g %a" "$HOME"; pwd'
        seen = [(await output(master, work_dir, name, line)).split() for name in ("t1", "t2")]
        for name, (uid, gid, groups, user, login, *rest) in zip(("t1", "t2"), seen, strict=True):
            assert uid == gid == groups
            assert int(uid) in DEFAULT_UIDS
            assert (user, login) == ("task", "task")
            assert rest == [uid, uid, "700", str(sandbox(work_dir, name))]
        assert seen[0][0] != seen[1][0]
        await eventually(lambda: sandbox(work_dir, "t2").stat().st_uid == 0)
        assert [path for path in uid_claims.BASE.iterdir() if path.name.isdecimal()] == []


async def test_a_task_cannot_attack_its_neighbour_or_the_agent(
    master: ScriptedMaster, work_dir: Path
) -> None:
    async with serving(master, work_dir):
        (work_dir / "token").touch(mode=0o600)
        master.launch(program("victim", "sleep", "60"))
        victim = (await master.state("victim", RUNNING)).pid
        shim = int(Path(f"/proc/{victim}/stat").read_text().rpartition(")")[2].split()[1])
        before = sandbox(work_dir, "victim").stat()
        lines = [
            f"if ({line}) >/dev/null 2>&1; then echo {name}; fi" for name, line in ATTACKS.items()
        ]
        setting = f"V={victim} VSHIM={shim} AGENT={os.getpid()} WORK={work_dir}; "
        # None of this may run as root, whatever else fails.
        guard = f'[ "$(id -u)" -ge {DEFAULT_UIDS.first} ] || exit 3; '
        # What it tries on itself succeeds, so the tools are there and can be seen to work.
        control = f"for t in {TOOLS}; do command -v $t >/dev/null || echo no $t; done\n"
        control += "kill -0 $$ && cat /proc/$$/environ >/dev/null && ls $HOME"
        script = "\n".join([guard + setting, *lines, control])
        assert await output(master, work_dir, "attacker", script) == "stderr\nstdout\n"
        assert is_running(victim)
        after = sandbox(work_dir, "victim").stat()
        assert (after.st_uid, after.st_mode) == (before.st_uid, before.st_mode)
        names = sorted(path.name for path in sandbox(work_dir, "victim").iterdir())
        assert names == ["stderr", "stdout"]
        assert (sandbox(work_dir, "victim") / "stdout").read_text() == ""


async def test_a_later_task_with_the_same_uid_cannot_enter_a_kept_sandbox(
    master: ScriptedMaster, work_dir: Path
) -> None:
    one = UidRange(2_050_000, 2_050_000)
    async with serving(master, work_dir, TaskUserFlags(task_uids=one)):
        line = "echo private >f; chmod 777 . f; cp /bin/true x; chmod 4755 x; id -u"
        assert await output(master, work_dir, "t1", line) == "2050000\n"
        # The end is reported before the sandbox is taken over and the uid is free.
        await eventually(lambda: sandbox(work_dir, "t1").stat().st_uid == 0)
        line = "id -u; for f in f stdout x; do cat ../t1/$f; done; ls ../t1; ../t1/x && echo ran"
        master.launch(shell("t2", f"({line}; sleep 60) 2>&1"))
        await master.state("t2", RUNNING)
        printed = sandbox(work_dir, "t2") / "stdout"
        await eventually(lambda: "not found" in printed.read_text() or "x:" in printed.read_text())
        first, *rest = printed.read_text().splitlines()
        assert first == "2050000"
        assert rest
        assert all("denied" in each for each in rest), rest
        # No other task can run meanwhile.
        master.launch(shell("t3", "true"))
        message = (await master.state("t3", FAILED)).message
        assert message == "all 1 uids of --task-uids are in use"


async def test_a_program_that_the_uid_may_not_execute_is_told_as_such(
    master: ScriptedMaster, work_dir: Path
) -> None:
    async with serving(master, work_dir):
        closed = work_dir.parent / "closed"
        closed.mkdir(mode=0o700)
        shutil.copy("/bin/true", closed / "true")
        master.launch(program("t1", str(closed / "true")))
        message = (await master.state("t1", FAILED)).message
        assert "not executable by the uid of its own that the task has on this agent" in message
        assert "name a user for the task" in message


async def test_accounts_that_tasks_may_not_name_are_refused_before_anything_is_made(
    master: ScriptedMaster, work_dir: Path
) -> None:
    async with serving(master, work_dir, TaskUserFlags(task_users=("daemon",))):
        for name, user in (("t1", "root"), ("t2", "nobody"), ("t3", "ghost")):
            master.launch(shell(name, "true", user=user))
            message = (await master.state(name, FAILED)).message
            assert "--task-users daemon" in message or "there is no user 'ghost'" in message
            assert not sandbox(work_dir, name).exists()
        master.launch(shell("t4", "id -un", user="daemon"))
        await master.state("t4", FINISHED)
        assert (sandbox(work_dir, "t4") / "stdout").read_text() == "daemon\n"


async def test_tasks_of_an_agent_before_own_uids_are_adopted_and_keep_their_user(
    master: ScriptedMaster, work_dir: Path, tmp_path: Path
) -> None:
    agent = AgentProcess(master.address, work_dir, tmp_path / "log", RESOURCES, "--on-stop", "end")
    try:
        agent.start("--task-user", "root")
        await master.agent()
        master.launch(program("old", "sleep", "60"))
        old = (await master.state("old", RUNNING)).pid
        agent.signal(signal.SIGKILL)
        await agent.ended()
        agent.start("--task-user", "own")
        await master.agent(2)
        master.launch(program("new", "sleep", "60"))
        new = (await master.state("new", RUNNING)).pid
        assert (Path(f"/proc/{old}").stat().st_uid, is_running(old)) == (0, True)
        uid = Path(f"/proc/{new}").stat().st_uid
        assert uid in DEFAULT_UIDS
        agent.signal(signal.SIGKILL)
        await agent.ended()
        agent.start("--task-user", "own")
        await master.agent(3)
        claim = Path(f"/run/croupier/uids/{uid}").readlink()
        assert claim.parent == work_dir / "runs"
        master.kill("new", 0)
        await master.state("new", TaskState.KILLED)
        await eventually(lambda: sandbox(work_dir, "new").stat().st_uid == 0)
        await eventually(lambda: not os.path.lexists(f"/run/croupier/uids/{uid}"))
        agent.signal(signal.SIGTERM)
        assert await agent.ended() == 0
        assert not is_running(old)
    finally:
        agent.end()
