"""Commands of scenarios for agents: they register, return, are operated and fall silent."""

from __future__ import annotations

import re
from dataclasses import replace

from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    Drain,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.agent_status import drain_progress
from croupier.master.core.effects import Answer
from croupier.master.core.events import AgentTask, Received
from croupier.master.core.records import AgentRecord
from croupier.model.access import AGENT_USER
from croupier.model.errors import CroupierError
from croupier.model.ids import AgentId, FrameworkId, HoldId, Role, TaskId
from croupier.model.task import Reason, Source, TaskState, TaskStatus
from croupier.model.volume import Volume
from tests.harness.scenario_commands import Commands
from tests.harness.secured_world import SecuredWorld
from tests.harness.world import devices_of, in_group, make_task


class AgentCommands(Commands):
    """The part of a `Story` about agents, and a master that restarts."""

    _held_back: bool

    def _do_agent(self, plain: list[str], options: dict[str, str]) -> None:
        name, resources = plain[0], plain[1]
        attributes = plain[2] if len(plain) > 2 and plain[2] != "lines-up" else ""
        agent_id = self._ids.get(name, "")
        if isinstance(self.world, SecuredWorld):
            agent_id = name
            self.world.as_principal(options.get("by", ""))
        session = self.world.agent(
            resources,
            options.get("host", name),
            attributes,
            agent_id,
            allocate=not self._held_back,
            features=options.get("features", ""),
            default_user=options.get("default-user", AGENT_USER),
            lines_up="lines-up" in plain,
            devices=devices_of(options.get("devices", "")),
        )
        if session not in self.world.closed:
            self._join(name, session, self.world.agent_id(session))

    def _do_drain(self, plain: list[str], options: dict[str, str]) -> None:
        grace = round(float(options["grace"]) * 1000) if "grace" in options else None
        self._operate(plain[0], Drain(grace))

    def _do_deactivate(self, plain: list[str], options: dict[str, str]) -> None:
        self._operate(plain[0], Deactivate())

    def _do_reactivate(self, plain: list[str], options: dict[str, str]) -> None:
        self._operate(plain[0], Reactivate())

    def _do_gone(self, plain: list[str], options: dict[str, str]) -> None:
        self._operate(plain[0], MarkGone())

    def _operate(self, agent: str, action: AgentAction) -> None:
        """Apply an action and print the agent after it."""
        effects = self.world.do(OperateAgent(1, self._ids.get(agent, agent), action))
        for effect in effects:
            if isinstance(effect, Answer) and isinstance(effect.result, CroupierError):
                self._out.append(f"refused: {self._with_names(str(effect.result))}")
        if not isinstance(action, MarkGone):
            self._print_agent(agent)

    def _do_show(self, plain: list[str], options: dict[str, str]) -> None:
        self._print_agent(plain[0])

    def _print_agent(self, name: str) -> None:
        agent = self.world.state.agents.get(AgentId(self._ids.get(name, name)))
        if agent is None:
            return
        text = f"{name} is {agent.state_name}" + (", deactivated" * agent.deactivated)
        drain = drain_progress(self.world.state, agent, self.world.now)
        if drain is not None and drain.is_done:
            text += ", drained"
        elif drain is not None:
            by = "" if drain.estimate_s is None else f" within {drain.estimate_s:.0f} s"
            text += f", draining: {drain.tasks_left} left{by}"
        self._out.append(text)
        for blocker in drain.blockers if drain is not None else ():
            self._out.append(f"  {blocker.task_id}: {blocker.reason}")

    def _do_restart(self, plain: list[str], options: dict[str, str]) -> None:
        """Fail over to the next master; every session ends. `auth=on` or `off` changes that.

        `without-totals`: the store is of an older release.
        """
        if "without-totals" in plain:
            self.world.saved = [
                AgentRecord(each.agent_id, each.hostname) if isinstance(each, AgentRecord) else each
                for each in self.world.saved
            ]
        state = self.world.state
        is_on = {"on": True, "off": False}.get(options.get("auth", ""), state.settings.auth)
        state.settings = replace(state.settings, auth=is_on)
        self.world.restart()
        self._sessions.clear()

    def _do_reregister(self, plain: list[str], options: dict[str, str]) -> None:
        """Register an agent with tasks: `reregister a1 cpus:4 F.t1 F.t2/cpus:2@ROLE`."""
        flags = ("lines-up", "incomplete", "unproven", "preempted", "finished", "gone", "killed")
        name, resources, *tasks = [word for word in plain if word not in flags]
        agent_id = AgentId(self._ids.get(name, name))
        state = TaskState[next((each.upper() for each in plain if each in flags[4:]), "RUNNING")]
        listed = []
        for task in tasks:
            words = re.fullmatch(r"(.+)\.([^/@]+)(?:/([^@]*))?(?:@(.+))?", task)
            assert words, task
            owner, task_id, amount, role = words.groups()
            framework_id = FrameworkId(self._ids.get(owner, owner))
            place = (framework_id, TaskId(task_id), agent_id)
            number = int(options.get("number", 1))
            reason = Reason.PREEMPTED if "preempted" in plain else Reason.NONE
            status = TaskStatus(*place, state, Source.EXECUTOR, reason, sequence=number)
            each = options.get("each", "cpus:1;mem:1GB") if amount is None else amount
            info = make_task(task_id, each)
            if "group" in options:
                info = in_group(options["group"], info)
            known, unproven = Role(role) if role else None, "unproven" in plain
            age_ms = 1000 * int(options.get("age", 0))
            about = (framework_id, info, status, (status,), known, unproven, age_ms)
            listed.append(AgentTask(*about))
        if isinstance(self.world, SecuredWorld):
            self.world.as_principal(options.get("by", ""))
        session = self.world.agent(
            resources,
            name,
            agent_id=agent_id,
            tasks=tuple(listed),
            features=options.get("features", ""),
            default_user=options.get("default-user", AGENT_USER),
            lines_up="lines-up" in plain,
            incomplete="incomplete" in plain,
            volumes=self._volumes(options.get("has", "")),
            devices=devices_of(options.get("devices", "")),
        )
        if session in self.world.closed:
            self._out = [line.replace(f"session {session} ", f"{name} ") for line in self._out]
        else:
            self._join(name, session, agent_id)

    def _volumes(self, text: str) -> tuple[Volume, ...]:
        """Read `F/v1,F/v2`: volumes that an agent has a directory of."""
        words = [word.partition("/") for word in text.split(",") if word]
        return tuple(
            Volume(HoldId(volume_id), FrameworkId(self._ids.get(owner, owner)))
            for owner, _, volume_id in words
        )

    def _do_heartbeat(self, plain: list[str], options: dict[str, str]) -> None:
        self.world.do(Received(self._sessions[plain[0]]))

    def _do_silence(self, plain: list[str], options: dict[str, str]) -> None:
        """Let time pass; all agents but the named ones send heartbeats."""
        mute = {self.world.state.agents[AgentId(self._ids[name])].session for name in plain[1:]}
        for session, peer in self.world.state.peers.items():
            if session not in mute:
                peer.last_received = self.world.now + float(plain[0])
        self.world.pass_time(float(plain[0]))
        for name in plain[1:]:
            self._print_agent(name)

    _do_time = _do_silence
