"""The rate and the audit lines of calls on streams.

A call is noted when it arrives, and its line is written with the master's answer. Calls that only
ask or acknowledge have none.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from croupier.master.access.audit import Audit, AuditOutcome, outcome_of
from croupier.master.access.caller import Call
from croupier.master.access.rate_limits import RateLimiter, Usage
from croupier.master.batch import event_cost
from croupier.master.core import calls
from croupier.master.core.events import FrameworkCalled, Register, Subscribe
from croupier.master.core.messages import Registered, Subscribed, ToAgent, ToFramework
from croupier.master.core.step import Event
from croupier.model.errors import CroupierError
from croupier.model.verdict import Verdict
from croupier.net.errors import STATUS
from croupier.net.outbox import Sized
from croupier.process.inbox import Inbox

OK: Final = "OK"
# The stream ended before the call was answered.
UNANSWERED: Final = "UNKNOWN"
# Calls of one stream that wait for their answer; more are not noted one by one.
MOST_OPEN: Final = 5_000


class StreamAudit:
    """The audited calls of one session."""

    def __init__(self, audit: Audit, call: Call) -> None:
        """Write to `audit` on behalf of the caller of `call`."""
        self._audit, self._call = audit, call
        self._introduction: Call | None = None
        self._open: OrderedDict[int, Call] = OrderedDict()

    def received(self, event: object, wire: Sized) -> None:
        """Note a call that arrived, if it is audited; `wire` is its message."""
        match event:
            case Subscribe():
                about = f"framework:{event.framework_id}" if event.framework_id else ""
                roles = ",".join(f"role:{role}" for role in event.roles[:10])
                named = ",".join(filter(None, (about, roles)))
                self._introduction = self._made("FrameworkService/SUBSCRIBE", named, wire)
            case Register():
                named = f"agent:{event.agent_id}" if event.agent_id else f"host:{event.hostname}"
                if unproven := sum(task.is_unproven for task in event.tasks):
                    named += f",{unproven} tasks without proof"
                self._introduction = self._made("AgentService/REGISTER", named, wire)
            case FrameworkCalled(_, seq, call):
                self._note(seq, call, wire)

    def sent(self, message: ToFramework | ToAgent, /) -> None:
        """Write the line of the call that `message` answers."""
        match message:
            case Verdict():
                found = self._open.pop(message.seq, None)
                if found is not None:
                    self._write(found, _result(message))
            case Subscribed() | Registered():
                found, self._introduction = self._introduction, None
                if found is not None:
                    named = (
                        f"framework:{message.framework_id}"
                        if isinstance(message, Subscribed)
                        else f"agent:{message.agent_id}"
                    )
                    if named not in found.object.split(","):
                        found.object = ",".join(filter(None, (named, found.object)))
                    self._write(found, OK)

    def ended(self, error: CroupierError | None, /) -> None:
        """Write the lines of the calls that were not answered; `error` refused the first one."""
        result = UNANSWERED if error is None else _name(error)
        found, self._introduction = self._introduction, None
        if found is not None:
            self._write(found, result)
        while self._open:
            _, found = self._open.popitem(last=False)
            self._write(found, UNANSWERED)

    def _note(self, seq: int, call: calls.Call, wire: Sized) -> None:
        name = about = ""
        match call:
            case calls.Accept():
                name, about = "ACCEPT", f"{len(call.all_tasks)} tasks"
                if call.tasks:
                    about += f",task:{call.tasks[0].task_id}"
                if not call.all_tasks:
                    return
            case calls.Submit():
                name, about = "SUBMIT", f"{len(call.all_tasks)} tasks"
                if call.tasks:
                    about += f",task:{call.tasks[0].task_id}"
            case calls.Kill():
                name, about = "KILL", f"task:{call.task_id}"
            case calls.Teardown():
                name = "TEARDOWN"
        if name and len(self._open) < MOST_OPEN:
            made = self._open[seq] = self._made(f"FrameworkService/{name}", about, wire)
            made.is_routine = name == "ACCEPT"

    def _made(self, method: str, about: str, wire: Sized) -> Call:
        return Call(method, self._call.caller, wire.ByteSize(), about)

    def _write(self, call: Call, result: str) -> None:
        outcome = outcome_of(result)
        # What is refused is never routine.
        call.is_routine &= outcome is not AuditOutcome.DENY
        self._audit.write(call, outcome, result)


def _result(verdict: Verdict) -> str:
    """Return `OK`, or the name of the first error."""
    errors = (verdict.error, *(task.error for task in verdict.tasks))
    return next((_name(error) for error in errors if error is not None), OK)


def _name(error: CroupierError) -> str:
    status = STATUS.get(type(error))
    return UNANSWERED if status is None else status.name


class StreamGuard:
    """Guards the calls of one stream, and audits them unless `audit` is None."""

    def __init__(
        self,
        limiter: RateLimiter | None = None,
        usage: Usage | None = None,
        audit: StreamAudit | None = None,
    ) -> None:
        """Limit the calls to the rate of `usage`, and audit them; None: not."""
        self._limiter, self._usage, self.audit = limiter, usage, audit

    async def put(self, inbox: Inbox[Event], event: Event, wire: Sized) -> None:
        """Put a call into the inbox; `wire` is its message. Wait if calls come too fast."""
        if self.audit is not None:
            self.audit.received(event, wire)
        if self._limiter is None or self._usage is None:
            await inbox.put(event)
        else:
            await self._limiter.put(self._usage, inbox, event, event_cost(event))


NO_GUARD: Final = StreamGuard()
