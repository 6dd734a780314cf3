"""A driver that applies random events to an allocator."""

from __future__ import annotations

from random import Random

from croupier.master.allocator import Allocator, Grant, Rules, policies
from croupier.master.allocator.past_use import PastUse
from croupier.master.allocator.pooled_agent import Earmark
from croupier.master.allocator.queue import ORDERS
from croupier.model.attributes import Constraint, equals, facts_of, not_equals
from croupier.model.demand import Demand
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.resources import Resources
from croupier.model.roles import (
    HIGHEST_FACTOR,
    LOWEST_FACTOR,
    MIN_HALF_LIFE_MS,
    RoleSettings,
)
from tests.harness.allocator_invariants import check_allocator
from tests.harness.oracle import Member, Oracle, Refusal, Task

ROLES = tuple(map(Role, ("a", "a/x", "a/x/1", "a/y", "b", "b/x", "c")))
ZONES = ("u", "v")
# Units and limits are multiples of these amounts.
UNITS = {"cpus": 1000, "mem": 100_000, "gpus": 1000}


class RandomDriver(Oracle):
    """An allocator under random events, checked by the oracle."""

    def __init__(self, seed: int, *, remembers: bool = True) -> None:
        """Begin with some agents and frameworks; visits skip misfits if it `remembers` them."""
        self.random = random = Random(seed)
        self.past = Random(f"{seed}/past")
        policy = policies.NAMES[seed % len(policies.NAMES)]
        order = ORDERS[seed // len(policies.NAMES) % len(ORDERS)]
        hold_s = random.choice((0.0, 0.0, 3.0))
        rules = Rules(hold_s=hold_s, order=order, seed=seed, remembers_misfits=remembers)
        super().__init__(Allocator(policies.make(policy, seed), rules), rules)
        # In every third run there is no authentication.
        self.owners = ("", "client/p", "client/q") if seed % 3 else ("",)
        self.name = f"{seed}: {policy}, {order}, hold {hold_s}"
        self.count = 0
        # Number of grants made.
        self.grants = 0
        for _ in range(3):
            self.agent_comes()
            self.framework_comes()

    # What happens.

    def apply_random_event(self) -> None:
        """Apply one random event."""
        weighed = {
            self.answer: 12,
            self.task_ends: 8,
            self.time_passes: 4,
            self.deal: 8,
            self.framework_demands: 4,
            self.role_is_set: 3,
            self.framework_turns: 3,
            self.roles_are_suppressed: 3,
            self.framework_changes_roles: 1,
            self.framework_is_claimed: 1,
            self.framework_comes: 1,
            self.framework_goes: 1,
            self.agent_comes: 1,
            self.agent_goes: 1,
            self.agent_turns: 2,
            self.task_is_found: 1,
            self.room_is_earmarked: 1,
        }
        (action,) = self.random.choices(list(weighed), list(weighed.values()))
        action()

    def agent_comes(self) -> None:
        if len(self.totals) > 6:
            return
        self.count += 1
        agent_id, random = AgentId(f"m{self.count}"), self.random
        scalars = {"cpus": random.randint(1, 9) * 1000, "mem": random.randint(1, 9) * 100_000}
        if random.random() < 0.4:
            scalars["gpus"] = random.randint(1, 2) * 1000
        ports = {"ports": ((1, random.randint(2, 9)),)} if random.random() < 0.5 else {}
        self.totals[agent_id] = Resources(scalars, ports)
        zone = {"zone": random.choice(ZONES)}
        self.facts[agent_id] = facts_of("", zone)
        self.allocator.add_agent(agent_id, self.totals[agent_id], "", zone)

    def agent_goes(self) -> None:
        if len(self.totals) < 2:
            return
        agent_id = self.random.choice(list(self.totals))
        for offer in [each for each in self.offers if each.agent_id == agent_id]:
            self.give_back(offer)
        for task in [each for each in self.tasks if each.grant_of[2] == agent_id]:
            self.end(task)
        self.allocator.remove_agent(agent_id)
        del self.totals[agent_id]
        self.away.discard(agent_id)
        self.refusals = {key: each for key, each in self.refusals.items() if key[2] != agent_id}

    def agent_turns(self) -> None:
        agent_id = self.random.choice(list(self.totals))
        self.away ^= {agent_id}
        for offer in [each for each in self.offers if each.agent_id == agent_id]:
            self.give_back(offer)
        self.allocator.activate_agent(agent_id, agent_id not in self.away)

    def framework_comes(self) -> None:
        if len(self.members) > 7:
            return
        self.count += 1
        framework_id = FrameworkId(f"f{self.count}")
        roles = tuple(self.random.sample(ROLES, self.random.choice((1, 1, 1, 2, 3))))
        self.members[framework_id] = Member(framework_id, roles)
        self.allocator.add_framework(framework_id, roles, self.random.choice(self.owners))
        self.allocator.set_demand(framework_id, self.demands(roles))
        self.allocator.connect(framework_id, True)

    def framework_is_claimed(self) -> None:
        member = self.random.choice(list(self.members.values()))
        self.allocator.set_owner(member.framework_id, self.random.choice(self.owners))

    def framework_goes(self) -> None:
        if len(self.members) < 2:
            return
        member = self.random.choice(list(self.members.values()))
        for offer in [each for each in self.offers if each.framework_id == member.framework_id]:
            self.give_back(offer)
        for task in [each for each in self.tasks if each.grant_of[0] == member.framework_id]:
            self.end(task)
        self.allocator.remove_framework(member.framework_id)
        del self.members[member.framework_id]
        self.forget_refusals(member.framework_id)

    def framework_turns(self) -> None:
        """Connect or disconnect a framework; its offers are rescinded."""
        member = self.random.choice(list(self.members.values()))
        member.is_connected = not member.is_connected
        self.allocator.connect(member.framework_id, member.is_connected)
        if not member.is_connected:
            self.forget_refusals(member.framework_id)
            for offer in [o for o in self.offers if o.framework_id == member.framework_id]:
                self.give_back(offer)

    def framework_demands(self) -> None:
        member = self.random.choice(list(self.members.values()))
        self.allocator.set_demand(member.framework_id, self.demands(member.roles))

    def framework_changes_roles(self) -> None:
        """Subscribe a framework again with other roles."""
        member = self.random.choice(list(self.members.values()))
        before = set(member.roles)
        member.roles = tuple(self.random.sample(ROLES, self.random.choice((1, 2))))
        self.allocator.set_roles(member.framework_id, member.roles)
        self.allocator.set_demand(member.framework_id, self.demands(member.roles))
        self.allocator.revive(member.framework_id)
        self.allocator.connect(member.framework_id, True)
        member.is_connected = True
        member.suppressed.clear()
        self.forget_refusals(member.framework_id, {*before, *member.roles})

    def roles_are_suppressed(self) -> None:
        member = self.random.choice(list(self.members.values()))
        roles = self.random.sample(member.roles, self.random.randint(0, len(member.roles)))
        if self.random.random() < 0.4:
            self.allocator.suppress(member.framework_id, roles)
            member.suppressed |= set(roles or member.roles)
        else:
            self.allocator.revive(member.framework_id, roles)
            member.suppressed -= set(roles or member.roles)
            self.forget_refusals(member.framework_id, set(roles or member.roles))

    def role_is_set(self) -> None:
        random, role = self.random, self.random.choice(ROLES)
        limit = {n: random.randint(0, 6) * u for n, u in UNITS.items() if random.random() < 0.3}
        guarantee = {n: random.randint(0, 3) * u for n, u in UNITS.items() if random.random() < 0.1}
        by_resource = {n: random.choice((500, 3000)) for n in UNITS if random.random() < 0.1}
        weight = random.choice((1000, 1000, 2000, 1, 10**9))
        half_life_ms = self.past.choice((0, MIN_HALF_LIFE_MS))
        settings = RoleSettings(weight, by_resource, guarantee, limit, half_life_ms=half_life_ms)
        self.settings[role] = settings if random.random() < 0.7 else RoleSettings()
        self.allocator.set_role(role, self.settings[role])

    def past_use_is_counted(self) -> None:
        """Change the weights of the roles with a half-life, as an accounting step does."""
        self.allocator.set_past(
            {
                role: PastUse(0, 0, self.past.randint(LOWEST_FACTOR, HIGHEST_FACTOR))
                for role, settings in self.settings.items()
                if settings.half_life_ms
            }
        )

    def time_passes(self) -> None:
        self.now += self.random.choice((0.0, 0.5, 1.0, 5.0))
        self.allocator.wake(self.now)
        self.past_use_is_counted()

    def room_is_earmarked(self) -> None:
        """Earmark resources of an agent, as a preemption does."""
        leaves = [leaf for leaf in self.tree.leaves.values() if leaf.is_member]
        agent_id = self.random.choice(list(self.totals))
        free = {
            n: m for n, m in self.totals[agent_id].scalars.items() if self.random.random() < 0.7
        }
        if free and leaves and self.agents.agents[agent_id].earmark is None:
            leaf = self.random.choice(leaves)
            mark = Earmark(leaf, Resources(free), self.now + 5.0)
            self.agents.earmark(self.agents.agents[agent_id], mark)

    def task_is_found(self) -> None:
        member = self.random.choice(list(self.members.values()))
        place = (
            member.framework_id,
            self.random.choice(ROLES),
            self.random.choice(list(self.totals)),
        )
        free = self.allocator.queries.free(place[2])
        if free["cpus"] >= 1000:
            task = Task(place, Resources({"cpus": 1000}))
            self.allocator.charges.charge(place[2], [(*place[:2], task.resources)])
            self.tasks.append(task)

    def task_ends(self) -> None:
        if self.tasks:
            self.end(self.random.choice(self.tasks))

    def deal(self) -> None:
        """Run a slice of a pass, and check its grants."""
        grants = self.allocator.run(self.now, self.random.choice((1, 5, 10**6)))
        for grant in grants:
            wrong = list(self.faults(grant))
            assert not wrong, (self.name, grant, wrong)
            self.offers.append(grant)
            self.grants += 1

    def answer(self) -> None:
        """Accept an offer in part or whole, decline it, or rescind it."""
        if not self.offers:
            return
        offer = self.random.choice(self.offers)
        left, launched = offer.resources, []
        units = [unit for unit, number in offer.units for _ in range(number)]
        for unit in units if self.random.random() < 0.5 else ():
            if self.random.random() < 0.8:
                launched.append(unit.carve(left, 1))
                left = left - launched[-1]
        if not units and self.random.random() < 0.5:
            part = {n: m for n, m in left.scalars.items() if self.random.random() < 0.7}
            launched = [Resources(part, left.ranges)] if part else []
            left = left - launched[0] if launched else left
        refuse_s = self.random.choice((None, 0.0, 0.0, 2.0, 20.0))
        self.end_offer(offer, left, launched, refuse_s)

    def give_back(self, offer: Grant) -> None:
        self.end_offer(offer, offer.resources, [], None)

    def end_offer(
        self, offer: Grant, left: Resources, launched: list[Resources], refuse_s: float | None
    ) -> None:
        self.offers.remove(offer)
        place = (offer.framework_id, offer.role, offer.agent_id)
        for task in launched:
            self.allocator.charges.launch(*place, task)
            self.tasks.append(Task(place, task))
        until = None if refuse_s is None else self.now + refuse_s
        if left and until is not None and self.members[offer.framework_id].is_connected:
            self.refusals.setdefault(place, []).append(Refusal(left, until))
        self.allocator.settle_offers(*place, offer.units, launched, left, until)

    def end(self, task: Task) -> None:
        self.tasks.remove(task)
        self.allocator.charges.release(*task.grant_of, task.resources)

    def forget_refusals(self, framework_id: FrameworkId, roles: set[Role] | None = None) -> None:
        for key in list(self.refusals):
            if key[0] == framework_id and (roles is None or key[1] in roles):
                del self.refusals[key]

    def demands(self, roles: tuple[Role, ...]) -> list[Demand]:
        random, found = self.random, dict[tuple[object, ...], Demand]()
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            scalars = {
                n: random.randint(1, 3) * u for n, u in UNITS.items() if random.random() < 0.4
            }
            if random.random() < 0.2:
                scalars["ports"] = random.randint(1, 2) * 1000
            unit = Resources(scalars or {"cpus": 1000})
            least = random.choice((1, 1, 1, 2, 3))
            most = random.choice((None, None, least, least + 1))
            role = random.choice((None, *roles))
            asked: tuple[Constraint, ...] = ()
            if random.random() < 0.4:
                asked = (random.choice((equals, not_equals))("zone", random.choice(ZONES)),)
            count = random.choice((None, 0, 1, 2, 5))
            demand = Demand(unit, count, asked, least, most, role)
            found[str(unit), role or roles[0]] = demand
        return list(found.values())

    # The end.

    def settle(self) -> None:
        """Allocate until no agent is dirty."""
        while self.allocator.has_dirty_agents:
            self.deal()
            check_allocator(self.allocator)

    def finish(self) -> None:
        """Release everything and remove every framework."""
        for offer in list(self.offers):
            self.give_back(offer)
        for task in list(self.tasks):
            self.end(task)
            check_allocator(self.allocator)
        for agent_id, total in self.totals.items():
            assert self.allocator.queries.free(agent_id) == total, agent_id
        assert not self.tree.root.slots
        assert all(leaf.is_member for leaf in self.tree.leaves.values())
        for framework_id in list(self.members):
            self.allocator.remove_framework(framework_id)
            check_allocator(self.allocator)
        tree = self.tree
        assert not tree.leaves
        assert not tree.roles
        assert not tree.root.held
        assert not tree.root.direction_sum
        assert not any(tree.askers.values())
        assert self.allocator.queries.filter_count() == 0
        assert not self.agents.earmarks()
