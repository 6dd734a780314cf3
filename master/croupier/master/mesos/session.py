"""The session of a framework of Mesos: its outbox of records, and the answers to its calls.

Mesos answers a call by events only. So a verdict becomes an update for each task that was refused,
and everything else in it is dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from secrets import token_hex
from typing import Final

from croupier.master.core.messages import Offered, Placed, Rescinded, ToFramework, Updated
from croupier.master.mesos.calls import Known, Translated
from croupier.master.mesos.events import (
    HEARTBEAT,
    Events,
    executor_end,
    operation_update,
)
from croupier.master.session import FrameworkSession
from croupier.mesos.executors import executor_id_in
from croupier.mesos.fields import Json, record, typed
from croupier.model.errors import (
    Conflict,
    CroupierError,
    NotFound,
    PermissionDenied,
    TooSlow,
    Unavailable,
)
from croupier.model.ids import AgentId, TaskId
from croupier.model.task import TaskState, TaskStatus
from croupier.model.verdict import Verdict
from croupier.net.outbox import Encoded
from croupier.v1 import framework_pb2 as pb

BEAT: Final = Encoded(record(HEARTBEAT))
# The reasons of tasks that are dropped with their call, for example because an offer has ended.
# Else, and for a single task, the framework is at fault.
_CALL_ERRORS: Final[tuple[tuple[type[CroupierError], str], ...]] = (
    (Conflict, "INVALID_OFFERS"),
    (NotFound, "INVALID_OFFERS"),
    (Unavailable, "AGENT_DISCONNECTED"),
)


class MesosSession(FrameworkSession):
    """A framework's stream of records.

    Attributes:
        stream_id: a secret that its calls carry.
        verdicts_seen: the number of the last verdict.
        has_body_credential: whether SUBSCRIBE itself held the credential, so that calls hold none.
    """

    has_body_credential = False
    verdicts_seen = 0

    def introduce(self, events: Events, known: Known, call: Callable[[Translated], None]) -> None:
        """Begin with what SUBSCRIBE says; `call` makes a call on behalf of the framework."""
        self.stream_id = token_hex(16)
        self._events, self._known_to_calls, self._call = events, known, call
        self._calls: dict[int, Translated] = {}
        self._last_seq = 0

    def number(self, call: Translated) -> int:
        """Return the number of a call whose verdict is needed."""
        self._last_seq += 1
        self._calls[self._last_seq] = call
        return self._last_seq

    def refuse(self, call: Translated) -> None:
        """Queue updates for the tasks and operations of a call that have no form in Croupier."""
        for operation_id, why in call.operations_refused:
            for event in operation_update(operation_id, "ERROR", why):
                self.outbox.put(Encoded(record(event)))
        for task_id, error in call.refused:
            self.outbox.put(Encoded(record(self._ended(task_id, call, error))))

    def beat(self) -> None:
        """Queue a heartbeat."""
        self.outbox.put(BEAT)

    def _queue(self, message: ToFramework) -> bool:
        if isinstance(message, Verdict):
            self.verdicts_seen = message.seq
            found = self._on_verdict(message, self._calls.pop(message.seq, None))
        elif isinstance(message, Updated | Placed):
            found = self._updates(message.statuses)
        else:
            if isinstance(message, Offered):
                self._known_to_calls.offers.offered(message)
            elif isinstance(message, Rescinded):
                self._known_to_calls.offers.ended([message.offer_id])
            found = self._events.of(message)
        return all(self.outbox.put(Encoded(record(each))) for each in found)

    def _last(self, error: CroupierError) -> Encoded | None:
        if isinstance(error, Unavailable | TooSlow):
            # ERROR makes clients give up. At the mere end of its stream a client subscribes again.
            return None
        return Encoded(record(typed("ERROR", message=str(error))))

    def _updates(self, statuses: Iterable[TaskStatus]) -> Iterator[Json]:
        """Yield the events for statuses; those of executors themselves are acknowledged here."""
        for status in statuses:
            if not executor_id_in(status.task_id, status.agent_id):
                executor_id = self._known_to_calls.executors.executor_of(status.task_id)
                yield from self._events.update(status, executor_id)
                continue
            if status.sequence:
                update = pb.Acknowledge.Update(
                    agent_id=status.agent_id, task_id=status.task_id, sequence=status.sequence
                )
                acknowledge = pb.Acknowledge(updates=[update])
                self._call(Translated(pb.Call(acknowledge=acknowledge)))
            if status.state.is_terminal and not status.is_reconciled:
                self._known_to_calls.executors.ended(TaskId(status.task_id))
                yield executor_end(status)

    def _on_verdict(self, verdict: Verdict, call: Translated | None) -> Iterator[Json]:
        if call is None:
            return
        if call.reconciled and isinstance(verdict.error, NotFound):
            # Mesos answers a KILL of an unknown task as RECONCILE.
            self._call(Translated(pb.Call(reconcile=pb.Reconcile(task_ids=[call.reconciled]))))
        errors = {each.id: each.error for each in verdict.operations}
        for hold_id, operation_id in call.operations.items():
            error = errors.get(hold_id, verdict.error)
            state, why = ("FINISHED", "") if error is None else ("ERROR", str(error))
            yield from operation_update(operation_id, state, why)
        refused: dict[str, CroupierError] = {}
        for task in verdict.tasks:
            if task.task_id in call.started:
                self._known_to_calls.executors.decided(TaskId(task.task_id))
                if task.error is not None:
                    self._known_to_calls.executors.ended(TaskId(task.task_id))
                    refused[task.task_id] = task.error
            elif task.error is not None:
                # A task follows its executor, and is refused with it.
                executor = TaskId(call.executors.get(task.task_id, ""))
                error = refused.get(executor) or task.error
                is_whole = verdict.error is not None
                yield self._ended(task.task_id, call, error, is_whole=is_whole)
                if self._known_to_calls.executors.is_left_by(executor):
                    self._call(Translated(pb.Call(kill=pb.Kill(task_id=executor))))

    def _ended(
        self, task_id: str, call: Translated, error: CroupierError, *, is_whole: bool = False
    ) -> Json:
        """Return the update of a task that was not launched; it needs no acknowledgement.

        `is_whole`: it was refused with the whole call.
        """
        state = TaskState.ERROR
        reason = "TASK_GROUP_" if task_id in call.grouped else "TASK_"
        reason += "UNAUTHORIZED" if isinstance(error, PermissionDenied) else "INVALID"
        for kind, dropped in _CALL_ERRORS if is_whole else ():
            if isinstance(error, kind):
                state, reason = TaskState.DROPPED, dropped
        agent_id = AgentId(call.agents.get(task_id, ""))
        now_ms = time.time_ns() // 1_000_000
        ids = (self.framework_id, TaskId(task_id), agent_id)
        found = self._events.status(TaskStatus(*ids, state, message=str(error), time_ms=now_ms))
        return typed("UPDATE", status={**found, "reason": f"REASON_{reason}"})
