"""Runs the text scenarios of tests/scenarios/allocator: each block is a case of its own.

A line has commands, with ` | ` between them, and after ` -> ` what the last of them prints.
A demand is written `UNIT[*COUNT][>LEAST][<MOST][~SECONDS][@ROLE][?ATTRIBUTE=VALUE]`, where the
seconds are the declared time of its tasks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from croupier.master.allocator import Grant, Rules, policies
from croupier.master.allocator.backfill import End
from croupier.master.allocator.pending_demand import Shape
from croupier.master.allocator.reservations import Reservation
from croupier.model.attributes import equals
from croupier.model.demand import ANYWHERE, Demand
from croupier.model.ids import NO_FRAMEWORK, AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from tests.harness.allocator_fixture import AllocatorFixture, amount, role_of, want
from tests.harness.allocator_invariants import check_allocator
from tests.harness.reasons import reasons_of

_DEMAND = re.compile(
    r"([^*<>~@?]+)(?:\*(\d+))?(?:>(\d+))?(?:<(\d+))?(?:~(\d+))?(?:@([^?]+))?(?:\?(.+)=(.+))?"
)


def demand_of(text: str) -> Demand:
    """Parse a demand."""
    found = _DEMAND.fullmatch(text)
    assert found, f"{text!r} is no demand"
    unit, count, least, most, seconds, role, name, value = found.groups()
    constraints = [equals(name, value)] if name else []
    number, highest = (None if each is None else int(each) for each in (count, most))
    demand = want(unit, number, *constraints, least=int(least or 1), most=highest, role=role)
    return replace(demand, max_completion_ms=1000 * int(seconds or 0))


class Case:
    """One case: an allocator, and the latest grant of each framework."""

    def __init__(self) -> None:
        self._fixture = AllocatorFixture()
        self._latest: dict[str, Grant] = {}
        self._ends: dict[AgentId, list[End]] = {}
        self._roles: dict[str, list[str]] = {}

    def run(self, command: str) -> str:
        """Run a command, and return what it prints."""
        name, *words = command.split()
        options = dict(word.split("=", 1) for word in words if re.match(r"[a-z]+=", word))
        plain = [word for word in words if not re.match(r"[a-z]+=", word)]
        handler: Callable[..., str | None] = getattr(self, "_do_" + name)
        printed = handler(*plain, **options) or ""
        check_allocator(self._fixture.allocator)
        return printed

    # What there is.

    def _do_policy(self, name: str) -> None:
        self._fixture = AllocatorFixture(policies.make(name))

    def _do_rules(self, hold: str = "0", order: str = "arrival", scarce: str = "gpus") -> None:
        names = frozenset(filter(None, scarce.split(",")))
        rules = Rules(hold_s=float(hold), order=order, scarce=names)
        self._fixture = AllocatorFixture(rules=rules)

    def _do_role(
        self, role: str, weight: str = "1", guarantee: str = "", limit: str = "", **factors: str
    ) -> None:
        by_resource = {name: float(each) for name, each in factors.items()}
        settings = role_of(float(weight), guarantee=guarantee, limit=limit, **by_resource)
        self._fixture.set_role(role, settings)

    def _do_framework(self, name: str, *demands: str, roles: str = "", owner: str = "") -> None:
        self._roles[name] = roles.split(",") if roles else [name]
        wanted = map(demand_of, demands)
        self._fixture.framework(name, *wanted, roles=self._roles[name], owner=owner)

    def _do_agent(self, name: str, total: str, **attributes: str) -> None:
        self._fixture.agent(name, total, **attributes)

    # What happens.

    def _do_deal(self) -> str:
        return self._told(self._fixture.deal())

    def _do_fill(self) -> str:
        """Deal and accept until nothing is granted; print what each framework uses."""
        for grant in self._fixture.fill():
            self._latest[grant.framework_id] = grant
        return self._do_use()

    def _do_accept(self, name: str, *tasks: str) -> None:
        self._fixture.accept(self._latest[name], *tasks)

    def _do_decline(self, name: str, refuse: str | None = None) -> None:
        self._fixture.decline(self._latest[name], None if refuse is None else float(refuse))

    def _do_charge(self, name: str, agent: str, resources: str) -> None:
        framework_id, role, agent_id = self._place(name, agent)
        charge = framework_id, role, amount(resources)
        self._fixture.allocator.charges.charge(agent_id, [charge])

    def _do_run(self, name: str, agent: str, resources: str, seconds: str) -> None:
        """Charge a task that has a declared time, and ends so many seconds from now."""
        self._do_charge(name, agent, resources)
        end = self._fixture.now + float(seconds), amount(resources)
        self._ends.setdefault(AgentId(agent), []).append(end)
        self._fixture.allocator.know_ends(lambda agent_id: self._ends.get(agent_id, ()))

    def _do_end(self, name: str, agent: str, resources: str) -> None:
        self._fixture.allocator.charges.release(*self._place(name, agent), amount(resources))

    def _do_refuse(self, name: str, agent: str, resources: str, until: str) -> None:
        self._fixture.refuse(*self._place(name, agent), amount(resources), float(until))

    def _do_keep(self, name: str, agent: str, seconds: str) -> None:
        """End an offer that was left unanswered for so long."""
        now = self._fixture.now
        ids = FrameworkId(name), AgentId(agent)
        self._fixture.allocator.answers.unused(*ids, now - float(seconds), now)

    def _do_reserve(
        self, name: str, agent: str, role: str, times: str, resources: str = ""
    ) -> None:
        """Reserve an agent, or an amount of it, from and to times such as `60-120`."""
        starts, ends = map(float, times.split("-"))
        some = amount(resources) if resources else None
        made = Reservation(name, (NO_FRAMEWORK, Role(role)), starts, ends, some)
        self._fixture.allocator.reservations.add(AgentId(agent), made)

    def _do_unreserve(self, name: str, agent: str) -> None:
        self._fixture.allocator.reservations.remove(AgentId(agent), name)

    def _do_reserved(self, agent: str) -> str:
        found = self._fixture.allocator.reservations.of(AgentId(agent))
        return ", ".join(f"{each.name} {each.amount or 'all'}" for each in found) or "nothing"

    def _do_queue(self, name: str, unit: str, count: str, time: str = "0") -> None:
        shape = Shape(amount(unit), ANYWHERE, 1000 * int(time))
        role = Role(self._roles[name][0])
        self._fixture.allocator.queue(FrameworkId(name), role, shape, int(count))

    def _do_demand(self, name: str, *demands: str) -> None:
        self._fixture.demand(name, *map(demand_of, demands))

    def _do_suppress(self, name: str, *roles: str) -> None:
        self._fixture.allocator.suppress(FrameworkId(name), list(map(Role, roles)))

    def _do_revive(self, name: str, *roles: str) -> None:
        self._fixture.allocator.revive(FrameworkId(name), list(map(Role, roles)))

    def _do_connect(self, name: str) -> None:
        self._fixture.allocator.connect(FrameworkId(name), True)

    def _do_disconnect(self, name: str) -> None:
        self._fixture.allocator.connect(FrameworkId(name), False)

    def _do_remove(self, name: str) -> None:
        self._fixture.allocator.remove_framework(FrameworkId(name))

    def _do_roles(self, name: str, *roles: str) -> None:
        self._fixture.allocator.set_roles(FrameworkId(name), list(map(Role, roles)))

    def _do_withhold(self, agent: str) -> None:
        self._fixture.allocator.activate_agent(AgentId(agent), False)

    def _do_return(self, agent: str) -> None:
        self._fixture.allocator.activate_agent(AgentId(agent), True)

    def _do_change(self, agent: str, total: str, **attributes: str) -> None:
        self._fixture.allocator.change_agent(AgentId(agent), amount(total), "", attributes)

    def _do_lose(self, agent: str) -> None:
        self._fixture.allocator.remove_agent(AgentId(agent))

    def _do_wait(self, seconds: str) -> None:
        self._fixture.wait(float(seconds))

    # What is asked.

    def _do_use(self) -> str:
        held = {
            leaf.name if leaf.name == leaf.role else f"{leaf.name} in {leaf.role}": leaf.held
            for leaf in self._fixture.tree.leaves.values()
        }
        amounts = {name: str(Resources(dict(each))) for name, each in sorted(held.items())}
        return ", ".join(f"{name} {each or 'nothing'}" for name, each in amounts.items())

    def _do_free(self, agent: str) -> str:
        return f"{agent} has {self._fixture.free(agent) or 'nothing'}"

    def _do_left(self, name: str) -> str:
        return f"{name} wants {', '.join(map(str, self._fixture.counts(name)))}"

    def _do_excess(self, name: str, resources: str) -> str:
        role, queries = Role(self._roles[name][0]), self._fixture.allocator.queries
        return queries.excess(FrameworkId(name), role, amount(resources)) or "within the limits"

    def _do_share(self, role: str) -> str:
        queries = self._fixture.allocator.queries
        share, due = queries.role_share(Role(role)), queries.role_entitlement(Role(role))
        return f"{role} has {share}, is entitled to {Fraction(due).limit_denominator(1000)}"

    def _do_why(self, name: str, agent: str | None = None) -> str:
        named = None if agent is None else AgentId(agent)
        queries, now = self._fixture.allocator.queries, self._fixture.now
        first = reasons_of(queries, FrameworkId(name), named, now)[0]
        about = f" ({first.about})" if first.about else ""
        return f"{first.cause.value}{about}, {first.agents} agents: {first.detail}"

    def _told(self, grants: Sequence[Grant]) -> str:
        for grant in grants:
            self._latest[grant.framework_id] = grant
        return ", ".join(self._text(grant) for grant in grants) or "nothing"

    def _text(self, grant: Grant) -> str:
        role = f" in {grant.role}" if len(self._roles[grant.framework_id]) > 1 else ""
        return f"{grant.framework_id} {grant.resources} on {grant.agent_id}{role}"

    def _place(self, name: str, agent: str) -> tuple[FrameworkId, Role, AgentId]:
        return FrameworkId(name), Role(self._roles[name][0]), AgentId(agent)


def run_deals(text: str) -> str:
    """Run every case, and return the text with what it prints."""
    blocks = []
    for block in text.strip().split("\n\n"):
        case = Case()
        lines = [line if line.startswith("#") else _ran(case, line) for line in block.splitlines()]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def _ran(case: Case, line: str) -> str:
    commands = line.partition(" -> ")[0]
    printed = [text for text in map(case.run, commands.split(" | ")) if text]
    return " -> ".join([commands, *printed])
