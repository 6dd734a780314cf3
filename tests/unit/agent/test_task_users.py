"""Tasks run as uids of their own or as allowed accounts, and no two live tasks share a uid."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import pytest

from croupier.agent import unix_user
from croupier.agent.isolation import uid_claims
from croupier.agent.isolation.flags import TaskUserFlags
from croupier.agent.isolation.task_users import AccountRule, TaskUsers, prepare_users
from croupier.agent.isolation.uid_claims import UidClaims
from croupier.agent.sandbox import Sandboxes
from croupier.agent.unix_user import DEFAULT_UIDS, OWN_NAME, UidRange, UnixUser, find_user
from croupier.agent.work_dir import WorkDir
from croupier.model.errors import InvalidRequest, NotFound, Unavailable
from croupier.model.ids import FrameworkId, TaskId

KEY = (FrameworkId("F1"), TaskId("t1"))
OTHER = (FrameworkId("F1"), TaskId("t2"))
FEW = UidRange(2_050_000, 2_050_002)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


class Machine:
    """A work dir and the claims of a machine."""

    def __init__(self, directory: Path, base: Path) -> None:
        (directory / "sandboxes").mkdir(parents=True, exist_ok=True)
        self.directory, self.base = directory, base
        self.sandboxes = Sandboxes(directory / "sandboxes")

    def users(self, uids: UidRange = FEW) -> TaskUsers:
        claims = UidClaims(uids, self.directory / "runs", self.base)
        return TaskUsers(self.sandboxes, AccountRule(uids=uids), uids, claims)

    def claimed(self) -> list[str]:
        return sorted(path.name for path in self.base.iterdir() if path.name.isdecimal())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "work", tmp_path / "uids")


def own(users: TaskUsers, run: str, key: tuple[FrameworkId, TaskId] = KEY) -> UnixUser:
    user = users.take(key, run, "")
    assert user is not None
    assert (user.is_own, user.name, user.groups, user.gid) == (True, OWN_NAME, (), user.uid)
    return user


@pytest.mark.parametrize("text", ["", "5", "-5", "a-b", "20-10", "0-10", "999-2000", "1-2-3"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        UidRange.parse(text)


def test_a_range_is_read_and_printed() -> None:
    uids = UidRange.parse("200000-265535")
    assert (str(uids), len(uids), 200_000 in uids, 265_536 in uids) == (
        "200000-265535", 65536, True, False
    )  # fmt: skip
    assert TaskUserFlags().task_uids == DEFAULT_UIDS


def test_a_range_with_an_account_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DEFAULT_UIDS.check_unused()
    nobody = pwd.getpwnam("nobody").pw_uid
    with pytest.raises(InvalidRequest, match=r"the (user|group) \S+ has ids in"):
        UidRange(nobody - 1, nobody + 1).check_unused()
    (tmp_path / "subuid").write_text("# a comment\n\nann:100000:65536\nbob:165536:65536\nx:y:z\n")
    monkeypatch.setattr(unix_user, "_SUBORDINATE", (tmp_path / "subuid", tmp_path / "missing"))
    UidRange(231_072, 300_000).check_unused()
    with pytest.raises(InvalidRequest, match=r"bob in \S+/subuid has ids in 231071-300000"):
        UidRange(231_071, 300_000).check_unused()


def test_live_tasks_never_share_a_uid_whichever_agent_runs_them(
    machine: Machine, tmp_path: Path
) -> None:
    other = Machine(tmp_path / "other", machine.base).users()
    users = machine.users()
    found = {own(users, "r1").uid, own(other, "r1").uid, own(users, "r2", OTHER).uid}
    assert found == set(range(FEW.first, FEW.last + 1))
    with pytest.raises(Unavailable, match="all 3 uids of --task-uids are in use"):
        own(other, "r2")
    users.release("r1")
    assert own(other, "r2").uid in found


def test_a_uid_is_used_again_only_after_all_others(machine: Machine) -> None:
    users = machine.users()
    taken = []
    for number in range(6):
        taken.append(own(users, f"r{number}").uid)
        users.release(f"r{number}")
        # The order survives the agent.
        users = machine.users()
    assert sorted(taken[:3]) == sorted(taken[3:]) == list(range(FEW.first, FEW.last + 1))
    assert taken[:3] == taken[3:]
    assert machine.claimed() == []


def test_a_repeated_start_of_a_run_has_the_same_uid(machine: Machine) -> None:
    users = machine.users()
    assert own(users, "r1") == own(users, "r1")
    users.release("r1")
    users.release("r1")
    assert machine.claimed() == []


@needs_root
def test_the_next_agent_keeps_uids_of_live_runs_and_releases_the_others(
    machine: Machine, tmp_path: Path
) -> None:
    users = machine.users()
    stranger = own(Machine(tmp_path / "other", machine.base).users(), "r1").uid
    live, ended = own(users, "live"), own(users, "ended", OTHER)
    for key, user in ((KEY, live), (OTHER, ended)):
        with machine.sandboxes.create(key, user):
            pass
    (machine.base / str(live.uid)).unlink()  # a claim that was lost
    again = machine.users()
    again.recover([(KEY, "live")])
    assert machine.claimed() == sorted([str(live.uid), str(stranger)])
    assert machine.sandboxes.owner_of(KEY) == live.uid
    assert machine.sandboxes.owner_of(OTHER) == 0
    assert own(again, "live") == live
    again.release("live")
    assert machine.sandboxes.owner_of(KEY) == 0


@needs_root
def test_another_range_changes_nothing_for_live_runs(machine: Machine) -> None:
    users = machine.users()
    live = own(users, "live")
    with machine.sandboxes.create(KEY, live):
        pass
    again = machine.users(UidRange(2_060_000, 2_060_001))
    again.recover([(KEY, "live")])
    assert machine.claimed() == [str(live.uid)]
    again.release("live")
    assert machine.claimed() == []
    assert machine.sandboxes.owner_of(KEY) == 0


@needs_root
def test_an_ended_sandbox_is_closed_for_its_uid_and_its_output_stays_readable(
    machine: Machine,
) -> None:
    users = machine.users()
    user = own(users, "r1")
    with machine.sandboxes.create(KEY, user) as sandbox, sandbox.streams() as (stdout, _):
        os.write(stdout, b"result")
        home = Path(sandbox.path)
    home.chmod(0o777)
    users.release("r1")
    status = home.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (0, user.uid, 0o700)
    fd = machine.sandboxes.open_output(KEY, "stdout")
    assert os.read(fd, 10) == b"result"
    os.close(fd)
    # A file of another owner is still no output of the task.
    os.chown(home / "stderr", user.uid + 1, user.uid)
    with pytest.raises(NotFound, match="not a file of its own"):
        machine.sandboxes.open_output(KEY, "stderr")


def test_a_live_run_keeps_its_uid_even_if_its_sandbox_cannot_be_read(machine: Machine) -> None:
    live = own(machine.users(), "live")
    again = machine.users()
    again.recover([(KEY, "live")])
    assert machine.claimed() == [str(live.uid)]
    assert own(again, "live") == live
    again.release("live")
    assert machine.claimed() == []


def test_claims_of_removed_work_dirs_are_released_once_uids_run_out(
    machine: Machine, tmp_path: Path
) -> None:
    gone = Machine(tmp_path / "gone", machine.base).users()
    for number in range(3):
        own(gone, f"r{number}")
    users = machine.users()
    with pytest.raises(Unavailable):
        # They are new, so their runs may just begin.
        own(users, "r1")
    for name in machine.claimed():
        os.utime(machine.base / name, (0, 0), follow_symlinks=False)
    assert own(users, "r1").uid in FEW
    assert len(machine.claimed()) == 1


def test_a_removed_directory_of_claims_is_made_again(machine: Machine) -> None:
    users = machine.users()
    for path in machine.base.iterdir():
        path.unlink()
    machine.base.rmdir()
    with pytest.raises(Unavailable, match="cannot claim a uid"):
        own(users, "r1")
    assert own(users, "r1").uid in FEW


def test_a_directory_of_claims_that_others_can_write_is_refused(machine: Machine) -> None:
    machine.base.mkdir()
    machine.base.chmod(0o777)
    with pytest.raises(Unavailable, match="not a directory of root alone"):
        machine.users()


def test_the_uids_of_processes_are_known() -> None:
    assert os.geteuid() in uid_claims.uids_of_processes()


@needs_root
def test_tasks_name_only_allowed_accounts() -> None:
    nobody = find_user("nobody")
    assert AccountRule().find("") is None
    assert AccountRule(default=nobody).find("") == nobody
    assert AccountRule().find("nobody") == nobody
    assert AccountRule(named=("daemon", "nobody")).find("nobody") == nobody
    assert AccountRule(named=("*", "root")).find("root") is None
    assert AccountRule(named=("root",)).find("root") is None
    for rule in (AccountRule(), AccountRule(named=("nobody",)), AccountRule(named=())):
        with pytest.raises(InvalidRequest, match="'root' on this agent: its --task-users"):
            rule.find("root")
    with pytest.raises(InvalidRequest, match=r"--task-users daemon does not name it$"):
        AccountRule(named=("daemon",)).find("nobody")
    with pytest.raises(InvalidRequest, match="uid 65534 is one of --task-uids"):
        AccountRule(uids=UidRange(65_000, 66_000)).find("nobody")
    with pytest.raises(InvalidRequest, match="there is no user 'ghost'"):
        AccountRule().find("ghost")


def test_an_agent_that_is_not_root_runs_tasks_as_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = pwd.getpwnam("daemon")
    monkeypatch.setattr(os, "geteuid", lambda: daemon.pw_uid)
    assert not TaskUserFlags().gives_own
    assert AccountRule(named=()).find("daemon") is None
    with pytest.raises(InvalidRequest, match="the agent does not run as root"):
        AccountRule().find("nobody")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (TaskUserFlags(task_user="own"), "--task-user own needs an agent that is root"),
        (TaskUserFlags(task_user="nobody"), "--task-user nobody: .* its own account, daemon"),
        (TaskUserFlags(task_user="ghost"), "--task-user ghost: there is no user 'ghost'"),
    ],
)
async def test_an_agent_that_is_not_root_refuses_other_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: TaskUserFlags, why: str
) -> None:
    work_dir = await WorkDir.open(tmp_path / "work")
    monkeypatch.setattr(os, "geteuid", lambda: pwd.getpwnam("daemon").pw_uid)
    with pytest.raises(InvalidRequest, match=why):
        prepare_users(flags, work_dir, Sandboxes(work_dir.sandboxes))
    work_dir.close()


@needs_root
async def test_a_work_dir_that_tasks_cannot_enter_is_refused(tmp_path: Path) -> None:
    # pytest makes its directories for one user alone.
    work_dir = await WorkDir.open(tmp_path / "work", is_passable=True)
    with pytest.raises(InvalidRequest) as refused:
        prepare_users(TaskUserFlags(), work_dir, Sandboxes(work_dir.sandboxes), tmp_path / "uids")
    closed = next(path for path in reversed(tmp_path.parents) if not path.stat().st_mode & 1)
    assert f"uids of their own, which cannot enter {closed}: give --work-dir" in str(refused.value)
    assert "--task-user NAME" in str(refused.value)
    work_dir.close()


@needs_root
async def test_a_missing_work_dir_is_made_passable_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        work_dir = await WorkDir.open(tmp_path / "a" / "work", is_passable=True)
        (tmp_path / "b").mkdir(mode=0o700)
        earlier = await WorkDir.open(tmp_path / "b", is_passable=True)
    finally:
        os.umask(before)
    paths = [tmp_path / "a", work_dir.path, work_dir.sandboxes, earlier.path, earlier.sandboxes]
    assert [oct(path.stat().st_mode & 0o777) for path in paths] == ["0o711"] * 5
    work_dir.close()
    earlier.close()
