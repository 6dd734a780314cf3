"""Checks of every call before its handler, by gRPC and by HTTP alike.

In this order: the caller is authenticated, its rate is checked, what the call requires is checked;
after the handler the audit line is written.

Rule: a call without a line in `REQUIREMENTS` is refused. A line is a coarse check, before anything
else looks at the request; the core and the views check the objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import grpc

from croupier.master.access.audit import Audit, AuditOutcome, outcome_of, short_name
from croupier.master.access.caller import Call, Caller, CredentialKind
from croupier.master.access.rate_limits import RateExceeded, RateLimiter, Usage
from croupier.master.core.state import State
from croupier.master.services.authentication import AuthenticationFailed, Authenticator, Presented
from croupier.master.services.stream_guard import StreamAudit, StreamGuard
from croupier.model.access import CLUSTER, Action, Object, Permissions, agent_object, role_object
from croupier.model.errors import CroupierError, PermissionDenied, Unauthenticated, Unavailable
from croupier.model.principal import Principal, PrincipalKind
from croupier.net.errors import nearest_status

if TYPE_CHECKING:  # aiohttp
    from croupier.process.http.credentials import HttpCredential

# Objects of one call that the audit log names.
MOST_OBJECTS: Final = 10

_STATUS: Final = grpc.StatusCode
# The name of a request for metrics in the audit log.
_METRICS: Final = "HTTP/metrics"
_FOLLOWS: Final = (
    "this master follows and knows no tokens: scrape it with a client certificate, or with the"
    " token in --metrics-token-file"
)


class Need(Enum):
    """Kinds of callers that may make a call: principals, agents, or the bearer of a join token."""

    PRINCIPAL = "principal"
    AGENT = "agent"
    JOIN = "join"


@dataclass(frozen=True, slots=True)
class Requirement:
    """What one call requires.

    Attributes:
        action: what the caller must be allowed to do to some object; None: nothing.
        is_change: whether the call changes something, so that it is audited also if it succeeds.
        object_of: returns what a request is about, for the audit log.
        targets: returns the objects of the action, so far as the request names them.
        is_bulk: whether its messages have a pace of their own: the call counts as one, and not by
            their bytes.
    """

    need: Need = Need.PRINCIPAL
    action: Action | None = None
    is_change: bool = False
    object_of: Callable[[Any], str] = lambda _: ""
    targets: Callable[[Any], Iterable[Object]] = lambda _: ()
    is_bulk: bool = False

    def check(self, call: Call, request: Any, permissions: Permissions) -> None:
        """Check that the caller may make the call at all, and note the rule that allows it.

        Raises PermissionDenied if it may not; Unavailable if its token was not checked, because
        this master did not lead yet.
        """
        caller = call.caller
        if not permissions.is_on:
            return
        if caller.kind is CredentialKind.UNCHECKED:
            raise Unavailable("this master has just begun to lead; try again")
        if (self.need is Need.JOIN) != (caller.kind is CredentialKind.JOIN):
            raise PermissionDenied(
                "only the bearer of a join token may join"
                if self.need is Need.JOIN
                else "a join token is for joining only: an agent gets a token of its own by it"
            )
        if self.need is Need.AGENT and caller.principal.agent_id is None:
            raise PermissionDenied(
                f"{caller.principal} is no agent: this needs the certificate or token of"
                f" {PrincipalKind.AGENT.value}/ID"
            )
        if self.action is None:
            return
        if not permissions.allows_somewhere(self.action):
            raise PermissionDenied(
                f"no rule allows {caller.principal} to {self.action.value} anything; an"
                " administrator can add one with `croupier access`"
            )
        target = next(iter(self.targets(request)), None) if request is not None else None
        if target is not None:
            call.rule = permissions.decide(self.action, target).rule


def _administer(**more: Any) -> Requirement:
    return Requirement(action=Action.ADMINISTER, targets=lambda _: (CLUSTER,), **more)


def _change(about: str, **more: Any) -> Requirement:
    """Return the requirement of a change; `about` names its object, by fields of the request."""
    return Requirement(is_change=True, object_of=about.format, **more)


def _of_agent(about: str) -> Requirement:
    return _change(about, action=Action.OPERATE_AGENTS, targets=lambda r: (agent_object(r.agent),))


def _joined(objects: Iterable[str], number: int) -> str:
    more = [f"{number - MOST_OBJECTS} more"] if number > MOST_OBJECTS else []
    return ",".join([*islice(objects, MOST_OBJECTS), *more])


def _changed(change: Any) -> str:
    """Return what a change of the policy is about."""
    kind = change.WhichOneof("change") or ""
    value = getattr(change, kind, "")
    if kind.endswith("key"):
        return f"key:{value if isinstance(value, str) else value.key_id}"
    name = value if isinstance(value, str) else getattr(value, "name", getattr(value, "group", ""))
    return f"{'rule' if kind.endswith('rule') else 'group'}:{name}"


_TASK: Final = "task:{0.framework_id}/{0.task_id}"
_AGENT: Final = "/croupier.v1.AgentService/"
_FRAMEWORK: Final = "/croupier.v1.FrameworkService/"
_OPERATOR: Final = "/croupier.v1.OperatorService/"
_ACCESS: Final = "/croupier.v1.AccessService/"

REQUIREMENTS: Final[Mapping[str, Requirement]] = {
    # Streams are audited call by call, see `stream_guard`.
    f"{_AGENT}Connect": Requirement(Need.AGENT),
    f"{_AGENT}Exec": Requirement(Need.AGENT, is_bulk=True),
    f"{_AGENT}Join": _change("agent:{0.agent_id}", need=Need.JOIN),
    f"{_FRAMEWORK}Connect": Requirement(action=Action.REGISTER),
    # These show each caller what it may view; followers name the leader by the first.
    **{
        f"{_OPERATOR}{name}": Requirement()
        for name in (
            *("GetMaster", "ListMasters", "ListAgents", "ListFrameworks", "ListRoles"),
            *("ListOffers", "ListTasks", "Explain", "GetOutputLinks", "WatchEvents"),
            *("GetOverview", "GetHeatmap", "GetHistory", "GetUsage", "Fit"),
            *("ListHolds", "ListReservations"),
        )
    },
    f"{_OPERATOR}ReadTaskFile": Requirement(is_bulk=True, object_of=_TASK.format),
    f"{_OPERATOR}ListTaskFiles": Requirement(object_of=_TASK.format),
    f"{_OPERATOR}GetTaskUse": Requirement(object_of=_TASK.format),
    # Audited at its start and its end, see `execs`.
    f"{_OPERATOR}ExecTask": Requirement(is_bulk=True),
    # An owner needs no rule for these.
    f"{_OPERATOR}KillTask": _change(_TASK),
    f"{_OPERATOR}TeardownFramework": _change("framework:{0.framework_id}"),
    f"{_OPERATOR}ReleaseHold": _change("hold:{0.hold_id}"),
    f"{_OPERATOR}CreateHold": _of_agent("hold:{0.hold_id}"),
    f"{_OPERATOR}CreateReservation": _change(
        "reservation:{0.reservation_id}",
        action=Action.CHANGE_ROLES,
        targets=lambda r: (role_object(r.role),),
    ),
    f"{_OPERATOR}DeleteReservation": _change("reservation:{0.reservation_id}"),
    f"{_OPERATOR}UpdateRoles": Requirement(
        action=Action.CHANGE_ROLES,
        is_change=True,
        object_of=lambda r: _joined((f"role:{each.role}" for each in r.changes), len(r.changes)),
        targets=lambda r: (role_object(each.role) for each in r.changes),
    ),
    **{
        f"{_OPERATOR}{name}": _of_agent("agent:{0.agent}")
        for name in ("DrainAgent", "DeactivateAgent", "ReactivateAgent", "MarkAgentGone")
    },
    f"{_ACCESS}WhoAmI": Requirement(),
    f"{_ACCESS}CheckAccess": Requirement(),
    f"{_ACCESS}GetPolicy": _administer(),
    f"{_ACCESS}ListTokens": _administer(),
    f"{_ACCESS}UpdatePolicy": _administer(
        is_change=True, object_of=lambda r: _joined(map(_changed, r.changes), len(r.changes))
    ),
    f"{_ACCESS}CreateToken": _administer(
        is_change=True, object_of="token:{0.token.token_id}".format
    ),
    # The holder of a token may revoke it.
    f"{_ACCESS}RevokeToken": _change("token:{0.token_id}"),
}


class Checks:
    """Checks calls.

    Attributes:
        is_on: whether callers are authenticated.
        unauthenticated: counts of calls without a valid credential, by reason.
        denied: counts of calls that no rule allows, by method.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        state: Callable[[], State | None],
        limiter: RateLimiter,
        audit: Audit,
    ) -> None:
        """Check by the access policy in `state`, which is None while this master follows."""
        self.is_on, self.limiter = authenticator.is_on, limiter
        self.unauthenticated: Counter[str] = Counter()
        self.denied: Counter[str] = Counter()
        self._authenticator, self._state, self._audit = authenticator, state, audit

    def permissions(self, principal: Principal) -> Permissions | None:
        """Return what a principal may do; None while this master follows."""
        state = self._state()
        return None if state is None else state.permissions(principal)

    def stream_guard(self, call: Call) -> StreamGuard:
        """Return the guard of the calls on the stream that `call` opens."""
        audit = StreamAudit(self._audit, call) if self._audit.is_on else None
        usage = self.limiter.usage(call.caller.rate_key) if self.is_on else None
        return StreamGuard(self.limiter, usage, audit)

    async def authenticate(self, call: Call, host: str, presented: Callable[[], Presented]) -> None:
        """Set the call's caller, at `host`; raises CroupierError without a valid credential."""
        call.caller = Caller(host=host)
        if self.is_on:
            try:
                call.caller = await self._authenticator.authenticate(presented())
            except AuthenticationFailed as error:
                self.unauthenticated[error.reason] += 1
                await self.limiter.failed(host)
                raise
            if not call.caller.is_stored:
                await self.limiter.failed(host)

    async def admit(self, call: Call) -> Usage | None:
        """Count an authenticated call; None: callers are not limited. Raises RateExceeded."""
        return await self.limiter.admit(call.caller.rate_key) if self.is_on else None

    def require(self, call: Call, request: Any) -> None:
        """Check what the call requires; a stream has no request yet.

        Raises PermissionDenied if the caller may not make it; AuthenticationFailed if its
        certificate was revoked since it was authenticated, or this master has begun to lead since
        then.
        """
        self._authenticator.check_revoked(call.caller)
        requirement = REQUIREMENTS.get(call.method)
        if requirement is None:
            raise PermissionDenied(f"no rule of this master covers {short_name(call.method)}")
        if request is not None:
            call.object = requirement.object_of(request)
        permissions = self.permissions(call.caller.principal)
        if permissions is not None:
            requirement.check(call, request, permissions)

    def ended(self, call: Call, result: str) -> None:
        """Count a refused call; write its audit line if it needs one, with the status `result`."""
        if result == _STATUS.PERMISSION_DENIED.name:
            self.denied[short_name(call.method)] += 1
        if not self._audit.is_on:
            return
        outcome = outcome_of(result)
        requirement = REQUIREMENTS.get(call.method)
        is_change = requirement is not None and requirement.is_change
        # A follower decides nothing but who is not authenticated.
        leads = self.permissions(call.caller.principal) is not None
        if (leads or outcome is AuditOutcome.DENY) and (
            is_change or outcome is not AuditOutcome.ALLOW
        ):
            self._audit.write(call, outcome, result)

    async def check_metrics_reader(self, credential: HttpCredential) -> None:
        """Check that the sender of a request may read metrics.

        A master that follows admits the certificate of any client of the cluster.

        Raises:
            Unauthenticated: if it has no valid credential.
            PermissionDenied: if no rule allows it.
            Unavailable: if this master cannot check the credential.
        """
        call = Call(_METRICS, Caller(host=credential.host), object=str(CLUSTER))
        try:
            call.caller = await self._authenticator.authenticate(Presented.by_http(credential))
            self._check_metrics_reader(call.caller)
        except (Unauthenticated, PermissionDenied) as error:
            self._audit.write(call, AuditOutcome.DENY, status_of(error).name)
            raise

    def _check_metrics_reader(self, caller: Caller) -> None:
        permissions = self.permissions(caller.principal)
        if permissions is not None:
            if not permissions.decide(Action.READ_METRICS, CLUSTER):
                raise PermissionDenied(
                    f"{caller.principal} may not {Action.READ_METRICS.value}; an administrator can"
                    " add a rule with `croupier access`"
                )
        elif caller.kind is CredentialKind.UNCHECKED:
            raise Unavailable(_FOLLOWS)
        elif not caller.principal.name.startswith(f"{PrincipalKind.CLIENT.value}/"):
            raise PermissionDenied(f"{caller.principal} is no client")


def status_of(error: CroupierError) -> grpc.StatusCode:
    """Return the status of a call that fails with `error`."""
    if isinstance(error, AuthenticationFailed):
        return _STATUS.UNAUTHENTICATED
    if isinstance(error, RateExceeded):
        return _STATUS.RESOURCE_EXHAUSTED
    return nearest_status(error)
