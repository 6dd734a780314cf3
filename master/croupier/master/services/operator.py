"""OperatorService: requests of operators and their tools."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from croupier.master.access.caller import (
    CredentialKind,
    current_call,
    current_caller,
    current_principal,
)
from croupier.master.core.agent_commands import (
    AgentAction,
    Deactivate,
    MarkGone,
    OperateAgent,
    Reactivate,
)
from croupier.master.core.authorisation import may_on_role
from croupier.master.core.calls import MakeHold
from croupier.master.core.effects import Pause
from croupier.master.core.framework_commands import OperatorKill, TeardownFramework
from croupier.master.core.hold_commands import CreateHold, ReleaseHold
from croupier.master.core.reservation_commands import CreateReservation, DeleteReservation
from croupier.master.core.role_commands import UpdateRoles
from croupier.master.core.state import State
from croupier.master.journal.watch import Watch
from croupier.master.leadership.leadership import Leadership
from croupier.master.leadership.roster import Roster
from croupier.master.overview.surveys import Surveys
from croupier.master.services import views
from croupier.master.services.execs import Execs
from croupier.master.services.explanations import view_reasons
from croupier.master.services.fit import view_fit
from croupier.master.services.operator_lists import OperatorLists
from croupier.master.services.output_links import links_to, readable_tasks
from croupier.master.services.reservations import view_reservation, wanted_from_wire
from croupier.master.services.stream import Context
from croupier.master.services.task_files import TaskFiles, listing_to_wire, use_to_wire
from croupier.master.services.task_places import NamedTask
from croupier.master.services.usage import usage_query
from croupier.master.services.visibility import Visibility
from croupier.master.wire.from_operator import (
    changes_from_wire,
    drain_from_wire,
    fit_from_wire,
)
from croupier.model.access import Action
from croupier.model.clock import Clock
from croupier.model.errors import CroupierError, NotLeader
from croupier.model.ids import AgentId, FrameworkId, HoldId, ReservationId, Role, TaskId, check_role
from croupier.model.principal import Principal
from croupier.v1 import operator_pb2 as pb
from croupier.wire.resources import resources_from_wire

ViewT = TypeVar("ViewT")


class OperatorService(OperatorLists):
    """Answers from the core's state, each at one moment."""

    def __init__(
        self,
        leadership: Leadership,
        clock: Clock,
        version: str,
        roster: Roster,
        files: TaskFiles,
        execs: Execs,
    ) -> None:
        """Answer for the current term."""
        super().__init__(leadership, clock)
        self._version = version
        self._roster, self._files, self._execs = roster, files, execs
        self._surveys = Surveys(leadership, clock, self._roster)

    async def GetMaster(
        self, request: pb.GetMasterRequest, context: Context
    ) -> pb.GetMasterResponse:
        """Return the master's identity and the cluster's resources; on a follower, the leader."""
        leadership, wire, caller = self._leadership, pb.GetMasterResponse(), current_caller()
        with suppress(NotLeader):
            wire = await leadership.read(
                lambda state: views.view_master(state, self._clock.now(), caller.principal)
            )
        wire.leader = leadership.is_leader
        if caller.is_redirected:
            wire.leader_address = leadership.leader
        wire.version, wire.http_address = self._version, self._roster.own_page
        return wire

    async def ListMasters(
        self, request: pb.ListMastersRequest, context: Context
    ) -> pb.ListMastersResponse:
        """Return the known masters; to a caller whose token is not checked, as GetMaster does."""
        caller = current_caller()
        if not caller.is_stored:
            raise self._leadership.refusal()
        masters = self._roster.masters(only_leader=caller.kind is CredentialKind.UNCHECKED)
        return pb.ListMastersResponse(masters=masters, now_ms=self._clock.wall_ms())

    async def CreateHold(
        self, request: pb.CreateHoldRequest, context: Context
    ) -> pb.CreateHoldResponse:
        """Hold free resources of an agent for a role."""
        wanted = MakeHold(
            HoldId(request.hold_id),
            resources_from_wire(request.resources),
            request.ttl_ms,
            volume=request.volume,
        )
        role, peer, caller = check_role(request.role), context.peer(), current_principal()
        made = await self._leadership.ask(
            lambda number: CreateHold(number, request.agent, role, wanted, peer, caller)
        )
        current_call().object = f"hold:{made.hold_id}"
        return pb.CreateHoldResponse(hold=views.view_hold(made))

    async def ReleaseHold(
        self, request: pb.ReleaseHoldRequest, context: Context
    ) -> pb.ReleaseHoldResponse:
        """End a hold."""
        hold_id, peer, caller = HoldId(request.hold_id), context.peer(), current_principal()
        ended = await self._leadership.ask(
            lambda number: ReleaseHold(number, hold_id, peer, caller)
        )
        return pb.ReleaseHoldResponse(hold=views.view_hold(ended))

    async def CreateReservation(
        self, request: pb.CreateReservationRequest, context: Context
    ) -> pb.CreateReservationResponse:
        """Reserve agents for a role."""
        wanted, wall_ms = wanted_from_wire(request), self._clock.wall_ms()
        peer, caller = context.peer(), current_principal()
        made = await self._leadership.ask(
            lambda number: CreateReservation(number, wanted, wall_ms, peer, caller)
        )
        current_call().object = f"reservation:{made.reservation.reservation_id}"
        return pb.CreateReservationResponse(reservation=view_reservation(made))

    async def DeleteReservation(
        self, request: pb.DeleteReservationRequest, context: Context
    ) -> pb.DeleteReservationResponse:
        """End a reservation."""
        reservation_id = ReservationId(request.reservation_id)
        peer, caller = context.peer(), current_principal()
        ended = await self._leadership.ask(
            lambda number: DeleteReservation(number, reservation_id, peer, caller)
        )
        return pb.DeleteReservationResponse(reservation=view_reservation(ended))

    async def KillTask(self, request: pb.KillTaskRequest, context: Context) -> pb.KillTaskResponse:
        """Kill a task."""
        grace = request.kill_policy.grace_ms if request.HasField("kill_policy") else None
        task_id, framework_id = TaskId(request.task_id), FrameworkId(request.framework_id)
        caller = current_principal()
        task = await self._leadership.ask(
            lambda number: OperatorKill(number, task_id, framework_id, grace, caller)
        )
        # The request may name no framework.
        current_call().object = f"task:{task.framework_id}/{task_id}"
        await self._note_rule(Action.KILL, task.framework_id, task.role)
        return pb.KillTaskResponse(task=views.view_task(task, self._wall))

    async def UpdateRoles(
        self, request: pb.UpdateRolesRequest, context: Context
    ) -> pb.UpdateRolesResponse:
        """Change settings of roles: all of them, or none."""
        changes, peer = changes_from_wire(request.changes), context.peer()
        caller = current_principal()
        moved = await self._leadership.ask(
            lambda number: UpdateRoles(
                number, changes, request.dry_run, request.force, peer, caller
            )
        )
        return await self._seen(
            caller, lambda visible: views.view_moved(moved, visible, dry_run=request.dry_run)
        )

    async def DrainAgent(
        self, request: pb.DrainAgentRequest, context: Context
    ) -> pb.DrainAgentResponse:
        """End an agent's tasks, and stop offering it."""
        view = await self._operate(request, drain_from_wire(request), context)
        return pb.DrainAgentResponse(agent=view)

    async def DeactivateAgent(
        self, request: pb.DeactivateAgentRequest, context: Context
    ) -> pb.DeactivateAgentResponse:
        """Stop offering an agent."""
        return pb.DeactivateAgentResponse(agent=await self._operate(request, Deactivate(), context))

    async def ReactivateAgent(
        self, request: pb.ReactivateAgentRequest, context: Context
    ) -> pb.ReactivateAgentResponse:
        """Offer an agent again."""
        return pb.ReactivateAgentResponse(agent=await self._operate(request, Reactivate(), context))

    async def MarkAgentGone(
        self, request: pb.MarkAgentGoneRequest, context: Context
    ) -> pb.MarkAgentGoneResponse:
        """Declare an agent and its tasks dead."""
        return pb.MarkAgentGoneResponse(agent=await self._operate(request, MarkGone(), context))

    async def TeardownFramework(
        self, request: pb.TeardownFrameworkRequest, context: Context
    ) -> pb.TeardownFrameworkResponse:
        """End a framework and its tasks for good."""
        framework_id, peer = FrameworkId(request.framework_id), context.peer()
        caller = current_principal()
        torn = await self._leadership.ask(
            lambda number: TeardownFramework(number, framework_id, peer, caller)
        )
        await self._note_rule(Action.TEARDOWN, framework_id)
        return pb.TeardownFrameworkResponse(tasks=torn.tasks)

    async def Explain(self, request: pb.ExplainRequest, context: Context) -> pb.ExplainResponse:
        """Explain why a framework gets no more offers."""
        framework_id, agent_id = FrameworkId(request.framework_id), AgentId(request.agent_id)
        caller = current_principal()

        def reasons(state: State) -> Generator[Pause, None, pb.ExplainResponse]:
            return view_reasons(state, framework_id, agent_id, self._clock.now(), caller)

        answer: pb.ExplainResponse = await self._leadership.read(reasons)
        if request.with_forecasts:
            asked = (framework_id, TaskId(request.task_id), caller)
            answer.forecasts.extend(await self._forecasts.of(*asked))
        return answer

    async def Fit(self, request: pb.FitRequest, context: Context) -> pb.FitResponse:
        """Return what could start now, and what would have to end for one more."""
        demand, caller = fit_from_wire(request), current_principal()
        return await self._leadership.read(
            lambda state: view_fit(state, demand, self._clock.now(), caller)
        )

    async def GetOutputLinks(
        self, request: pb.GetOutputLinksRequest, context: Context
    ) -> pb.GetOutputLinksResponse:
        """Return links to the output of tasks that the caller may read."""
        keys, caller = self._leadership.term().links, current_principal()
        tasks = await self._leadership.read(
            lambda state: readable_tasks(state, request, state.permissions(caller))
        )
        return await links_to(tasks, keys, self._clock.wall_ms() / 1000)

    async def GetOverview(
        self, request: pb.GetOverviewRequest, context: Context
    ) -> pb.GetOverviewResponse:
        """Return the totals of the cluster."""
        return await self._surveys.overview(current_principal())

    async def GetHeatmap(
        self, request: pb.GetHeatmapRequest, context: Context
    ) -> pb.GetHeatmapResponse:
        """Return the state and the load of every agent."""
        return await self._surveys.heatmap(current_principal())

    async def GetHistory(
        self, request: pb.GetHistoryRequest, context: Context
    ) -> pb.GetHistoryResponse:
        """Return the use of resources and the shares of roles in the last hour."""
        return await self._surveys.history(current_principal())

    async def GetUsage(self, request: pb.GetUsageRequest, context: Context) -> pb.GetUsageResponse:
        """Return what roles, frameworks, principals or cost centers had in a time."""
        return await self._leadership.read(
            usage_query(request, self._clock.wall_ms(), current_principal())
        )

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Context
    ) -> AsyncIterator[pb.WatchEventsResponse]:
        """Yield what happened, and with `follow` what happens. Raises as `Watch`."""
        term, caller = self._leadership.term(), current_caller()
        watch = Watch(term, caller, request)
        with term.readers.reading(caller):
            async with aclosing(watch.batches()) as batches:
                async for found in batches:
                    yield found

    async def ReadTaskFile(
        self, request: pb.ReadTaskFileRequest, context: Context
    ) -> AsyncIterator[pb.ReadTaskFileResponse]:
        """Yield a part of a task's output or of one of its files. Raises as `TaskFiles.read`."""
        async with aclosing(self._files.read(request, current_caller())) as chunks:
            async for chunk in chunks:
                yield chunk

    # As in the services of agents and frameworks.
    async def ExecTask(  # type: ignore[override]
        self, request_iterator: AsyncIterator[pb.ExecTaskRequest], context: Context
    ) -> None:
        """Run a command beside a task. Raises as `Execs.serve_caller`."""
        await self._execs.serve_caller(current_call(), request_iterator, context.write)

    async def ListTaskFiles(
        self, request: pb.ListTaskFilesRequest, context: Context
    ) -> pb.ListTaskFilesResponse:
        """Return the entries of a directory of a task's sandbox."""
        listed = await self._files.list(NamedTask.of(request), request.path, current_caller())
        return listing_to_wire(listed)

    async def GetTaskUse(
        self, request: pb.GetTaskUseRequest, context: Context
    ) -> pb.GetTaskUseResponse:
        """Return what a live task has used so far."""
        return use_to_wire(await self._files.use(NamedTask.of(request), current_caller()))

    async def _note_rule(
        self, action: Action, framework_id: FrameworkId, role: Role | None = None
    ) -> None:
        """Note for the audit log which rule allowed a call about a framework, which is answered."""
        call = current_call()
        if call.caller.principal.is_anonymous:
            return

        def rule(state: State) -> str:
            framework = state.frameworks.get(framework_id)
            if framework is None:
                return ""
            permissions = state.permissions(call.caller.principal)
            named = framework.roles[0] if role is None else role
            decision = may_on_role(permissions, action, named, framework.owner)
            return decision.rule if permissions.is_on else ""

        with suppress(CroupierError):
            call.rule = await self._leadership.read(rule)

    async def _operate(self, request: Any, action: AgentAction, context: Context) -> pb.AgentView:
        peer, caller = context.peer(), current_principal()
        status = await self._leadership.ask(
            lambda number: OperateAgent(number, request.agent, action, peer, caller)
        )
        return await self._seen(
            caller, lambda visible: views.view_agent(status, visible, self._wall)
        )

    async def _seen(self, caller: Principal, view: Callable[[Visibility | None], ViewT]) -> ViewT:
        """Return what a command has answered, so far as the caller may view it.

        Without authentication that is all of it, and the core is not asked again: the command has
        succeeded, even if this master has ceased to lead since.
        """
        if caller.is_anonymous:
            return view(None)
        return await self._leadership.read(lambda state: view(Visibility(state, caller)))
