"""Budgets of roles: their periods, and what happens once they are used up."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from croupier.master.allocator.reasons import Cause
from croupier.master.core import calls
from croupier.master.core.effects import SessionId
from croupier.master.core.events import AccountingDue
from croupier.master.core.facts import BudgetReached
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.roles import RoleChange, RolePart
from croupier.master.core.settings import Settings
from croupier.master.store.rows import decode, encode
from croupier.model.agent_orders import RecallTask
from croupier.model.budget import DAY_MS, Budget, BudgetAction, BudgetPeriod, parse_budget
from croupier.model.errors import InvalidRequest
from croupier.model.ids import Role
from croupier.model.roles import RoleSettings
from croupier.model.task import TaskInfo
from tests.harness.world import World, make_task

# 2026-11-27 12:00 UTC, a Friday.
NOON = 1_795_780_800_000
ADS, WEB = Role("ads"), Role("web")


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("period", "begin"),
    [
        ("hour", "2026-11-27T12:00"),
        ("day", "2026-11-27"),
        ("week", "2026-11-23"),
        ("month", "2026-11-01"),
    ],
)
def test_a_period_begins_at_its_time_in_utc(period: str, begin: str) -> None:
    assert BudgetPeriod(period).begin_ms(NOON + 1) == ms(begin)
    assert BudgetPeriod(period).begin_ms(ms(begin)) == ms(begin)
    assert BudgetPeriod(period).begin_ms(ms(begin) - 1) < ms(begin)


def test_much_use_of_a_tiny_budget_still_fits_a_message() -> None:
    budget = Budget({"mem": 1})
    petabyte = 2**30 * 1000
    assert 1_000_000 < budget.used_ppm({"mem": petabyte * 31 * DAY_MS}) < 2**63


def test_months_have_their_own_lengths() -> None:
    begins = {BudgetPeriod.MONTH.begin_ms(day * DAY_MS) for day in range(20_000, 20_000 + 1461)}
    assert begins == {
        ms(f"{year}-{month:02}-01")
        for year in range(2024, 2029)
        for month in range(1, 13)
        if (2024, 10) <= (year, month) <= (2028, 10)
    }


@pytest.mark.parametrize(
    "text", ["cpus:1000/month/block", "cpus:0.5;mem:2TB/hour/lowest", "gpus:8/week/warn"]
)
def test_a_budget_is_read_as_it_is_written(text: str) -> None:
    budget = parse_budget(text)
    assert parse_budget(str(budget)) == budget
    assert budget is not None
    assert str(budget).endswith(text.partition("/")[2])


@pytest.mark.parametrize(
    "text",
    ["", "cpus:1", "cpus:1/year", "cpus:1/day/stop", "/day", "cpus:0/day", "cpu:1/day", "x/day"],
)
def test_a_text_that_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_budget(text)


def test_the_resource_of_which_most_is_used_counts() -> None:
    budget = Budget({"cpus": 2_000, "gpus": 1_000})
    assert budget.used_ppm({"cpus": 2_000 * 1_800_000, "gpus": 1_000 * 900_000}) == 500_000
    assert parse_budget("none") is None


class Teams:
    """Two roles on an agent with 4 cpus; the first has a budget of 2 hours of a cpu."""

    def __init__(self, action: str, period: str = "hour", *, lines_up: bool = False) -> None:
        self.world = World(settings=Settings(offer_lease_s=10_000.0, max_offer_lease_s=10_000.0))
        self.agent = self.world.agent("cpus:4;mem:64GB", agent_id="a1", lines_up=lines_up)
        self.set_budget(f"cpus:2/{period}/{action}")
        self.ads = self.world.framework("ads", name="ads", suppressed=True)
        self.web = self.world.framework("web", name="web", suppressed=True)
        self._made = 0

    def set_budget(self, text: str) -> None:
        settings = RoleSettings(budget=parse_budget(text))
        self.world.do(UpdateRoles(1, (RoleChange(ADS, settings, (RolePart.BUDGET,)),)))

    def submit(self, session: SessionId, number: int = 1) -> list[str]:
        """Submit tasks of one cpu; return their ids."""
        tasks: list[TaskInfo] = []
        for _ in range(number):
            self._made += 1
            tasks.append(make_task(f"t{self._made:02}", "cpus:1;mem:1GB"))
        role = ADS if session == self.ads else WEB
        self.world.call(session, calls.Submit(tuple(tasks), role))
        return [task.task_id for task in tasks]

    def finish(self, session: SessionId, *task_ids: str) -> None:
        for task_id in task_ids:
            self.world.finish(self.agent, self.world.framework_id(session), task_id)

    def later(self, minutes: float) -> None:
        """Let time pass, with an accounting step at its end; nobody is silent meanwhile."""
        self.world.now += 60 * minutes
        self.world.do(AccountingDue(NOON + round(self.world.now * 1000)))

    def running(self, session: SessionId) -> int:
        """Return how many tasks run."""
        framework = self.world.state.frameworks[self.world.framework_id(session)]
        return sum(task.is_active for task in framework.tasks.values())

    def reached(self) -> list[int]:
        """Return the levels that were reported."""
        return [fact.percent for fact in self.world.facts if isinstance(fact, BudgetReached)]

    def causes(self, session: SessionId) -> dict[Cause, str]:
        """Return why a framework gets no more."""
        queries = self.world.state.allocator.queries
        framework_id = self.world.framework_id(session)
        found = queries.explaining(framework_id, None, self.world.now)
        return {each.cause: each.detail for each in found if each is not None}


def test_a_role_that_used_up_its_budget_is_dealt_nothing_until_the_next_period() -> None:
    teams = Teams("block")
    first = teams.submit(teams.ads, 4)
    teams.later(23)
    assert teams.reached() == []
    teams.later(2)
    assert teams.reached() == [80]
    teams.later(6)
    assert teams.reached() == [80, 100]
    assert teams.running(teams.ads) == 4, "running tasks run on"
    teams.submit(teams.ads, 4)
    teams.finish(teams.ads, *first)
    assert teams.running(teams.ads) == 0
    told = teams.causes(teams.ads)[Cause.BUDGET]
    assert told == (
        "role ads has used up its budget of cpus:2/hour/block for this hour: nothing new is"
        " started in it"
    )
    teams.submit(teams.web, 1)
    assert teams.running(teams.web) == 1
    teams.later(20)
    assert teams.running(teams.ads) == 0
    teams.later(10)
    assert teams.running(teams.ads) == 3
    assert teams.reached() == [80, 100]


def test_a_new_or_removed_budget_counts_at_once() -> None:
    teams = Teams("warn")
    teams.submit(teams.ads, 6)
    teams.later(31)
    assert teams.reached() == [100]
    assert teams.running(teams.ads) == 4, "a warning changes nothing"
    teams.set_budget("cpus:2/hour/block")
    teams.finish(teams.ads, "t01")
    assert teams.running(teams.ads) == 3
    teams.set_budget("cpus:3/hour/block")
    assert teams.running(teams.ads) == 4
    teams.set_budget("cpus:1/hour/block")
    teams.finish(teams.ads, "t02")
    assert teams.running(teams.ads) == 3
    teams.set_budget("none")
    assert teams.running(teams.ads) == 4
    assert teams.world.state.budgets == {}


def test_a_role_with_the_lowest_turn_is_served_what_no_other_wants() -> None:
    teams = Teams("lowest")
    first = teams.submit(teams.ads, 4)
    teams.later(31)
    assert teams.reached() == [100]
    more = teams.submit(teams.ads, 8)
    theirs = teams.submit(teams.web, 3)
    teams.finish(teams.ads, *first)
    # By its share alone it would come first for two of the four.
    assert teams.running(teams.web) == 3
    assert teams.running(teams.ads) == 1, "nobody else wants the rest"
    last = teams.submit(teams.web, 1)
    teams.finish(teams.ads, more[0])
    assert (teams.running(teams.web), teams.running(teams.ads)) == (4, 0)
    told = teams.causes(teams.ads)[Cause.BUDGET]
    assert told.endswith("for this hour: other roles come first")
    teams.finish(teams.web, *theirs, *last)
    assert teams.running(teams.ads) == 4


def test_the_next_master_blocks_a_role_too_and_reports_nothing_again() -> None:
    teams = Teams("block", "day")
    first = teams.submit(teams.ads, 4)
    teams.later(31)
    world = teams.world
    framework_id = world.framework_id(teams.ads)
    world.restart()
    (status,) = world.state.budgets.values()
    assert status.level == 100
    world.facts.clear()
    teams.ads = world.framework(
        "ads", framework_id=framework_id, client_id="c2", name="ads", suppressed=True
    )
    teams.agent = world.agent("cpus:4;mem:64GB", agent_id="a2")
    teams.submit(teams.ads, 2)
    assert teams.running(teams.ads) == 0
    teams.later(1)
    assert teams.reached() == []
    assert first


@pytest.mark.parametrize("action", ["block", "lowest"])
def test_tasks_that_are_lined_up_are_recalled(action: str) -> None:
    teams = Teams(action, lines_up=True)
    teams.submit(teams.ads, 7)
    assert teams.world.state.lined
    teams.later(31)
    orders = teams.world.sent[teams.agent]
    assert [each for each in orders if isinstance(each, RecallTask)]


def test_roles_below_share_the_budget_and_the_turn() -> None:
    teams = Teams("block")
    below = teams.world.framework("ads/prod", name="prod", suppressed=True)
    tasks = (make_task("p1", "cpus:4;mem:1GB"),)
    teams.world.call(below, calls.Submit(tasks, Role("ads/prod")))
    teams.later(31)
    assert teams.reached() == [100]
    teams.world.finish(teams.agent, teams.world.framework_id(below), "p1")
    teams.submit(teams.ads)
    tasks = (make_task("p2", "cpus:4;mem:1GB"),)
    teams.world.call(below, calls.Submit(tasks, Role("ads/prod")))
    assert teams.running(below) == teams.running(teams.ads) == 0
    # A framework that joins now is blocked as well.
    late = teams.world.framework("ads/dev", name="dev", demand="cpus:1", count=1)
    assert teams.world.offers(late) == []


def test_a_budget_is_stored_with_its_role() -> None:
    teams = Teams("block")
    (record,) = [each for each in teams.world.saved if getattr(each, "role", "") == ADS]
    assert decode("role", encode(record).body or b"") == record
    assert BudgetAction.BLOCK.value in str(record)
