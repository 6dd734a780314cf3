"""Runs the text scenarios of tests/scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import count

from croupier.master.allocator.starvation import PreemptionRules
from croupier.master.core import calls
from croupier.master.core.effects import Close, Effect, Happened, Save, Send, SessionId
from croupier.master.core.events import SessionEnded, TimePassed
from croupier.master.core.messages import (
    AgentFailed,
    Offered,
    Placed,
    PreemptRequested,
    Registered,
    Rescinded,
    Subscribed,
    Updated,
)
from croupier.master.core.settings import Settings
from croupier.master.core.tasks import Task
from croupier.model.agent_orders import (
    AcknowledgeUpdate,
    KillTask,
    LaunchGroup,
    LaunchTask,
    RecallTask,
    ResendUpdates,
    SetVolume,
)
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.isolation import Isolation, Limits
from croupier.model.preemption import parse_min_run
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings, parse_amounts
from croupier.model.task import Command, Reason, TaskState
from croupier.model.verdict import Verdict
from tests.harness.allocator_invariants import check_allocator
from tests.harness.deals import demand_of
from tests.harness.reasons import reasons_of
from tests.harness.scenario_agents import AgentCommands
from tests.harness.scenario_commands import AccessCommands, OperatorCommands
from tests.harness.scenario_tasks import TaskCommands, preemption_of
from tests.harness.secured_world import NOW_MS, SecuredWorld
from tests.harness.tenants import TENANTS
from tests.harness.world import (
    World,
    in_group,
    make_task,
    with_devices,
    with_executor,
    with_volumes,
)

# Scenarios use longer leases than the default maximum.
LEASES = Settings(max_offer_lease_s=60.0)


class Story(AccessCommands, AgentCommands, OperatorCommands, TaskCommands):
    """A running scenario."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._sessions: dict[str, SessionId] = {}
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._held_back = False
        self._next_task = 0
        self._now_ms = NOW_MS
        self._runs = count(1)
        self._enter(World(settings=LEASES))

    def run(self, command: str) -> str:
        """Run a command and return its output."""
        self._out = []
        self._words = words = command.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        plain = [word for word in words[1:] if "=" not in word]
        handler: Callable[[list[str], dict[str, str]], None]
        handler = getattr(self, "_do_" + words[0].replace("-", "_"))
        handler(plain, options)
        return "\n".join(self._out) or "nothing"

    def _enter(self, world: World) -> None:
        """Print the effects of a new world."""
        self.world = world
        original = world._step

        def step(event: object) -> list[Effect]:
            effects = original(event)  # type: ignore[arg-type]
            for effect in effects:
                self._tell(effect)
            return effects

        world._step = step  # type: ignore[method-assign]

    # Commands.

    def _do_begin(self, plain: list[str], options: dict[str, str]) -> None:
        """Begin another scenario, with these settings."""
        Story.__init__(self)
        self._enter(World(settings=chosen(options)))

    def _do_secured(self, plain: list[str], options: dict[str, str]) -> None:
        is_on = options.pop("auth", "on") == "on"
        self._enter(SecuredWorld(settings=chosen(options), is_on=is_on))

    def _do_tenants(self, plain: list[str], options: dict[str, str]) -> None:
        """Begin with the rules of `tenants`; on agent `a1` Anna's framework `F` runs `t1`."""
        Story.__init__(self)
        world = SecuredWorld(settings=chosen(options))
        self._enter(world)
        world.allow(*TENANTS)
        self.run("agent a1 cpus:4;mem:4GB host=h1")
        self.run("framework F role=ads/prod by=anna")
        self.run("accept F t1=cpus:1;mem:1GB")
        self.run("time 6")
        self._out = []

    def _do_weights(self, plain: list[str], options: dict[str, str]) -> None:
        weights = {role: int(weight) * 1000 for role, weight in options.items()}
        self._enter(World(weights, LEASES))

    def _do_preemption(self, plain: list[str], options: dict[str, str]) -> None:
        rules = PreemptionRules(
            is_on=True,
            fair_timeout_s=float(options.get("starvation", 60)),
            guarantee_timeout_s=float(options.get("guarantee", 15)),
            grace_s=float(options.get("grace", 30)),
        )
        kind = SecuredWorld if "secured" in plain else World
        self._enter(kind(settings=replace(LEASES, preemption=rules)))

    def _do_role(self, plain: list[str], options: dict[str, str]) -> None:
        settings = RoleSettings(
            int(options.get("weight", 1)) * 1000,
            guarantee=parse_amounts(options.get("guarantee", "")),
            limit=parse_amounts(options.get("limit", "")),
            preemption={"on": True, "off": False}.get(options.get("preemption", "")),
            min_run_ms=parse_min_run(options.get("min_run", "inherit")),
        )
        self.world.state.allocator.set_role(Role(plain[0]), settings)
        self.world.do(TimePassed())

    def _do_together(self, plain: list[str], options: dict[str, str]) -> None:
        self._held_back = True

    def _do_deal(self, plain: list[str], options: dict[str, str]) -> None:
        """Run a pass, and print each grant with shares computed here, not by the engine."""
        self._held_back = False
        allocator, totals = self.world.state.allocator, self._totals()
        held: dict[str, Resources] = {}
        grants = allocator.run(self.world.now)
        units = sorted(
            (deal, self._name(grant.framework_id), grant)
            for grant in grants
            for deal in grant.deals
        )
        for deal, name, grant in units:
            unit = grant.units[0][0] if grant.units else grant.resources
            held[name] = held.get(name, Resources()) + unit
            shares = {
                each: max(Fraction(m, totals[n]) for n, m in amount.scalars.items())
                for each, amount in sorted(held.items())
            }
            text = ", ".join(f"{each} {share}" for each, share in shares.items())
            self._out.append(f"deal {deal} to {name}: {unit}; shares {text}")
        check_allocator(self.world.state.allocator)

    def _do_framework(self, plain: list[str], options: dict[str, str]) -> None:
        name = plain[0]
        if isinstance(self.world, SecuredWorld):
            self.world.as_principal(options.get("by", ""))
        session = self.world.framework(
            options.get("role", name),
            options.get("demand", ""),
            int(options["count"]) if "count" in options else None,
            options.get("id", self._ids.get(name, "")),
            # Another run of its program, which numbers its calls from 1 again.
            client_id=f"c{next(self._runs)}",
            name=name,
            failover_timeout_s=float(options.get("failover", 600)),
            offer_lease_s=float(options.get("lease", 0)),
            allocate=not self._held_back and "owner" not in options,
            roles=_several(options.get("roles")),
            demands=tuple(map(demand_of, _several(options.get("wants")))),
            suppressed="suppressed" in plain,
            suppressed_roles=_several(options.get("suppressed")),
        )
        if "owner" in options:
            framework_id = self.world.framework_id(session)
            framework = self.world.state.frameworks[framework_id]
            if not framework.owner:
                self.world.state.set_owner(framework, PrincipalName(options["owner"]))
            self.world.do(TimePassed(), not self._held_back)
        if session not in self.world.closed:
            self._join(name, session, self.world.framework_id(session))

    def _do_accept(self, plain: list[str], options: dict[str, str]) -> None:
        """Launch tasks on the first offer, or on all of them, or on those `in` a role."""
        run_as, role = Command(("true",), user=options.pop("user", "")), options.pop("in", "")
        # 3 s is what tasks have by default.
        grace_ms = round(float(options.pop("grace", 3)) * 1000)
        bounds = [each.split(":") for each in _several(options.pop("limits", ""))]
        limits = Limits(**{name: int(most) for name, most in bounds})
        box = options.pop("isolation", "")
        isolation = Isolation("namespaces" in box, "no-network" in box, box * (":" in box))
        named = [f"m-{each}" for each in _several(options.pop("from", ""))]
        preemption = preemption_of(options)
        volumes, devices = options.pop("volumes", ""), options.pop("devices", "")
        session, offers = self._sessions[plain[0]], self.world.offers(self._sessions[plain[0]])
        wanted = named or [o.offer_id for o in offers if "all" in plain or o.role == role] or None
        tasks = [
            replace(
                with_devices(with_volumes(make_task(task, each), volumes), devices),
                command=run_as,
                grace_ms=grace_ms,
                limits=limits,
                isolation=isolation,
                preemption=preemption,
            )
            for task, each in options.items()
        ]
        self.world.accept(session, *tasks, offers=wanted)

    def _do_launch_group(self, plain: list[str], options: dict[str, str]) -> None:
        """Launch a group on the first offer: `launch-group F g t1=cpus:1 t2:sidecar=cpus:1`."""
        session, tasks = self._sessions[plain[0]], []
        for named, resources in options.items():
            name, _, part = named.partition(":")
            tasks.append(in_group(plain[1], make_task(name, resources), part or "member"))
        self.world.accept(session, *tasks)

    def _do_launch_in(self, plain: list[str], options: dict[str, str]) -> None:
        """Launch executors, and tasks in them: `launch-in F e1=cpus:1 t1:e1=cpus:1`."""
        session, tasks = self._sessions[plain[0]], []
        for named, resources in options.items():
            name, _, executor_id = named.partition(":")
            tasks.append(with_executor(make_task(name, resources), executor_id))
        self.world.accept(session, *tasks)

    def _do_accept_all(self, plain: list[str], options: dict[str, str]) -> None:
        session = self._sessions[plain[0]]
        (demand,) = self.world.state.allocator.queries.demands(FrameworkId(self._ids[plain[0]]))
        for offer in self.world.offers(session):
            tasks = []
            for _ in range(demand.unit.units_within(offer.resources, 1000)):
                self._next_task += 1
                tasks.append(make_task(f"{plain[0]}{self._next_task}", str(demand.unit)))
            self.world.accept(session, *tasks, offers=[offer.offer_id])

    def _do_decline(self, plain: list[str], options: dict[str, str]) -> None:
        refuse = float(options["refuse"]) if "refuse" in options else None
        self.world.decline(self._sessions[plain[0]], refuse)

    def _do_run(self, plain: list[str], options: dict[str, str]) -> None:
        self._report(plain[0], plain[1], TaskState.RUNNING)

    def _do_finish(self, plain: list[str], options: dict[str, str]) -> None:
        framework, task_id = plain[:2]
        self._report(framework, task_id, TaskState.FINISHED)
        if "unacknowledged" not in plain:
            self._do_acknowledge(plain, options)

    def _do_demand(self, plain: list[str], options: dict[str, str]) -> None:
        number = int(options["count"]) if "count" in options else None
        demands = tuple(map(demand_of, plain[1:]))
        if number is not None:
            demands = tuple(replace(demand, count=number) for demand in demands)
        self._call(plain[0], calls.UpdateDemand(demands))

    def _do_kill(self, plain: list[str], options: dict[str, str]) -> None:
        grace = round(float(options["grace"]) * 1000) if "grace" in options else None
        self._call(plain[0], calls.Kill(TaskId(plain[1]), grace))

    def _do_reconcile(self, plain: list[str], options: dict[str, str]) -> None:
        self._call(plain[0], calls.Reconcile(tuple(TaskId(task) for task in plain[1:])))

    def _do_teardown(self, plain: list[str], options: dict[str, str]) -> None:
        self._call(plain[0], calls.Teardown())

    def _do_break(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.do(SessionEnded(self._sessions.pop(plain[0]), "the stream broke"))

    def _do_killed(self, plain: list[str], options: dict[str, str]) -> None:
        reason = Reason.PREEMPTED if "preempted" in plain else Reason.NONE
        code = int(options["code"]) if "code" in options else None
        self._report(plain[0], plain[1], TaskState.KILLED, reason, code)

    def _do_acknowledge(self, plain: list[str], options: dict[str, str]) -> None:
        task = self._task(plain[0], plain[1])
        self._call(plain[0], calls.Acknowledge(((task.agent_id, task.task_id, task.sequence),)))

    def _do_shares(self, plain: list[str], options: dict[str, str]) -> None:
        for framework in self.world.state.frameworks.values():
            share = self.world.state.allocator.queries.share(framework.framework_id)
            running = sum(not task.state.is_terminal for task in framework.tasks.values())
            name = self._name(framework.framework_id)
            self._out.append(f"{name} {share} = {float(share):.3f} with {running} tasks")

    def _do_passes(self, plain: list[str], options: dict[str, str]) -> None:
        self._out.append(f"{self.world.state.allocator.passes} passes")

    def _do_why(self, plain: list[str], options: dict[str, str]) -> None:
        framework_id = FrameworkId(self._ids[plain[0]])
        agent_id = AgentId(self._ids[plain[1]]) if len(plain) > 1 else None
        reasons = reasons_of(
            self.world.state.allocator.queries, framework_id, agent_id, self.world.now
        )
        for passed in reasons:
            detail = self._with_names(passed.detail)
            self._out.append(f"{passed.cause.value}, {passed.agents} agents: {detail}")

    # Output.

    def _tell(self, effect: Effect) -> None:
        match effect:
            case Send(session, message):
                if (text := self._text_of(message)) is not None:
                    self._out.append(f"{self._name_of(session)} <- {text}")
            case Close(session, error):
                self._out.append(f"{self._name_of(session)} closed: {error or 'orderly'}")
            case Save() | Happened():
                pass

    def _text_of(self, message: object) -> str | None:
        match message:
            case Offered(offer_id, agent, role, resources, hold_id=hold_id):
                of = f"hold {hold_id} of {agent.hostname}" if hold_id else agent.hostname
                return f"offer {offer_id[2:]} of {of} to {role}: {resources}"
            case Rescinded(offer_id, reason):
                return f"rescind {offer_id[2:]}: {reason}"
            case Verdict(_, error, tasks, operations):
                bad = [f"{task.task_id}: {task.error}" for task in tasks if task.error]
                bad += [f"hold {each.id}: {each.error}" for each in operations if each.error]
                return "; ".join([f"refused: {error}"] if error else bad) or None
            case Updated(statuses) | Placed(_, statuses):
                return ", ".join(
                    f"{status.task_id} {status.state.name}"
                    + (f" ({status.message})" if status.message else "")
                    + (f", decided in {status.decided_in_s:g} s" if status.decided_in_s else "")
                    for status in statuses
                )
            case AgentFailed(_, hostname, text):
                return f"lost {hostname}: {text}"
            case PreemptRequested(task_ids, agent_id, grace_s, _, reason):
                asked, why = " ".join(task_ids), self._with_names(reason)
                return f"end {asked} on {self._name(agent_id)} within {grace_s:.0f} s: {why}"
            case Subscribed() | Registered():
                return "welcome"
            case _:
                return _order_text(message)

    def _name_of(self, session: SessionId) -> str:
        named = [name for name, each in self._sessions.items() if each == session]
        return named[0] if named else f"session {session}"

    def _name(self, known: str) -> str:
        return self._names.get(known, known)

    def _totals(self) -> dict[str, int]:
        totals: dict[str, int] = {}
        for agent in self.world.state.agents.values():
            for name, milli in agent.total.scalars.items():
                totals[name] = totals.get(name, 0) + milli
        return totals

    def _task(self, framework: str, task_id: str) -> Task:
        return self.world.state.frameworks[FrameworkId(self._ids[framework])].tasks[TaskId(task_id)]

    def _report(
        self,
        framework: str,
        task_id: str,
        state: TaskState,
        reason: Reason = Reason.NONE,
        code: int | None = None,
    ) -> None:
        task = self._task(framework, task_id)
        session = self._sessions[self._names[task.agent_id]]
        number = task.sequence + 1
        self.world.report(
            session, self._ids[framework], task_id, state, number, reason=reason, code=code
        )

    def _call(self, framework: str, call: calls.Call) -> None:
        self.world.call(self._sessions[framework], call)


def chosen(options: dict[str, str]) -> Settings:
    """Return the settings of scenarios with these numbers."""
    numbers = {name: type(getattr(LEASES, name))(each) for name, each in options.items()}
    return replace(LEASES, **numbers)


def _order_text(message: object) -> str:
    """Return what an agent is ordered to do."""
    match message:
        case LaunchTask(_, task, lined_up=is_lined_up, sequence=sequence):
            again = f" after update {sequence}" if sequence else ""
            how = "line up" if is_lined_up else "launch"
            return f"{how} {task.task_id} {task.resources}{again}"
        case LaunchGroup(orders):
            return f"{orders[0].task.group_id}: {', '.join(map(_order_text, orders))}"
        case RecallTask(_, task_id):
            return f"recall {task_id}"
        case KillTask(_, task_id, grace_ms, reason):
            grace = "" if grace_ms is None else f" within {grace_ms / 1000:g} s"
            return f"kill {task_id} {reason.name}{grace}"
        case SetVolume(volume, size):
            what = f"keep volume of {size} bytes" if size else "remove volume"
            return f"{what} {volume.owner}/{volume.volume_id}"
        case ResendUpdates():
            return "resend"
        case AcknowledgeUpdate(_, task_id, sequence):
            return f"acknowledge {task_id} up to {sequence}"
        case _:
            return str(message)


def _several(text: str | None) -> tuple[str, ...]:
    """Split a list by its commas."""
    return tuple(text.split(",")) if text else ()


def run_story(text: str) -> str:
    """Run every command of a scenario and return the text with their output."""
    story = Story()
    blocks = []
    for block in text.strip().split("\n\n"):
        head, _, _ = block.partition("\n----")
        comments = [line for line in head.splitlines() if line.startswith("#")]
        commands = [line for line in head.splitlines() if not line.startswith("#")]
        if not commands:
            blocks.append("\n".join(comments))
            continue
        outputs = [story.run(command) for command in commands]
        out = "\n".join(line for line in outputs if line != "nothing") or "nothing"
        blocks.append("\n".join([*comments, *commands, "----", out]))
    return "\n\n".join(blocks) + "\n"
