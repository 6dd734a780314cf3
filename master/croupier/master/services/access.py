"""AccessService: principals, groups, rules and tokens."""

from __future__ import annotations

from croupier.master.access.caller import CredentialKind, current_caller, current_principal
from croupier.master.core.access_records import TokenId
from croupier.master.core.authorisation import require_administer
from croupier.master.core.policy_commands import RevokeKey, UpdatePolicy
from croupier.master.core.state import State
from croupier.master.core.token_commands import CreateToken, RevokeToken
from croupier.master.leadership.leadership import Leadership
from croupier.master.services import lists
from croupier.master.services.paging import Pages
from croupier.master.services.stream import Context
from croupier.master.wire.access import (
    changes_from_wire,
    policy_to_wire,
    token_from_wire,
    token_to_wire,
)
from croupier.model.access import Action, Object
from croupier.model.access_checks import check_action, parse_action
from croupier.model.clock import Clock
from croupier.model.errors import InvalidRequest
from croupier.model.principal import Principal, check_principal
from croupier.v1 import access_pb2 as pb
from croupier.v1.access_pb2_grpc import AccessServiceServicer
from croupier.wire.resources import check_count

MAX_GROUPS = 1_000


class AccessService(AccessServiceServicer):
    """Translates between administrators and the core."""

    def __init__(self, leadership: Leadership, clock: Clock, *, is_auth_on: bool) -> None:
        """Serve the term of `leadership`."""
        self._leadership, self._clock, self._is_auth_on = leadership, clock, is_auth_on
        self._pages = Pages(leadership.read, clock)

    async def WhoAmI(self, request: pb.WhoAmIRequest, context: Context) -> pb.WhoAmIResponse:
        """Return the caller's principal and groups."""
        caller = current_caller()

        def groups(state: State) -> list[str]:
            found = state.access.groups_of(caller.principal) if self._is_auth_on else ()
            return sorted({*found, *(f"oidc:{each}" for each in caller.principal.groups)})

        return pb.WhoAmIResponse(
            principal=caller.principal.name,
            groups=await self._leadership.read(groups),
            credential="" if caller.kind is CredentialKind.NONE else caller.kind.value,
            expires_ms=caller.expires_ms,
            time_ms=self._clock.wall_ms(),
            is_auth_on=self._is_auth_on,
        )

    async def CheckAccess(
        self, request: pb.CheckAccessRequest, context: Context
    ) -> pb.CheckAccessResponse:
        """Return whether a principal may do something, and why."""
        caller = current_principal()
        action, target = parse_action(request.action), Object.parse(request.object)
        check_action(action, target)
        check_count(len(request.groups), MAX_GROUPS, "groups of one principal")
        asked = caller
        if request.principal or request.groups:
            name = check_principal(request.principal) if request.principal else caller.name
            asked = Principal(name, frozenset(request.groups))

        def decide(state: State) -> pb.CheckAccessResponse:
            if asked.name != caller.name or request.groups:
                require_administer(state, caller)
            return _decision(state, asked, action, target)

        return await self._leadership.read(decide)

    async def GetPolicy(
        self, request: pb.GetPolicyRequest, context: Context
    ) -> pb.GetPolicyResponse:
        """Return all groups and rules."""
        caller = current_principal()

        def policy(state: State) -> pb.GetPolicyResponse:
            require_administer(state, caller)
            return policy_to_wire(state.access)

        return await self._leadership.read(policy)

    async def UpdatePolicy(
        self, request: pb.UpdatePolicyRequest, context: Context
    ) -> pb.UpdatePolicyResponse:
        """Change groups and rules: all of the changes, or none."""
        changes, caller = changes_from_wire(request.changes), current_principal()
        own = current_caller().credential_id
        if any(isinstance(each, RevokeKey) and each.key_id == own for each in changes):
            raise InvalidRequest("this is the key of your own certificate; use another credential")
        now_ms = self._clock.wall_ms()
        answer = await self._leadership.ask(
            lambda number: UpdatePolicy(number, changes, now_ms, request.dry_run, caller)
        )
        return pb.UpdatePolicyResponse(policy=policy_to_wire(answer), dry_run=request.dry_run)

    async def ListTokens(
        self, request: pb.ListTokensRequest, context: Context
    ) -> pb.ListTokensResponse:
        """Return a page of the tokens."""
        found, token = await self._pages.page(lists.all_tokens(current_principal()), request)
        return pb.ListTokensResponse(tokens=found, next_page_token=token)

    async def CreateToken(
        self, request: pb.CreateTokenRequest, context: Context
    ) -> pb.CreateTokenResponse:
        """Store a token that the caller has made."""
        token, caller = (
            token_from_wire(request.token, request.token_hash),
            current_principal(),
        )
        now_ms = self._clock.wall_ms()
        made = await self._leadership.ask(lambda number: CreateToken(number, token, now_ms, caller))
        return pb.CreateTokenResponse(token=token_to_wire(made))

    async def RevokeToken(
        self, request: pb.RevokeTokenRequest, context: Context
    ) -> pb.RevokeTokenResponse:
        """Revoke a token; its streams end."""
        caller, now_ms = current_caller(), self._clock.wall_ms()
        own = TokenId(caller.credential_id if caller.is_token else "")
        revoked = await self._leadership.ask(
            lambda number: RevokeToken(
                number, TokenId(request.token_id), now_ms, caller.principal, own
            )
        )
        return pb.RevokeTokenResponse(token=token_to_wire(revoked))


def _decision(
    state: State, asked: Principal, action: Action, target: Object
) -> pb.CheckAccessResponse:
    permissions = state.permissions(asked)
    decision = permissions.decide(action, target)
    if not permissions.is_on:
        reason = "authentication is off: every caller may do everything"
    elif decision:
        reason = f"rule {decision.rule!r} allows {asked} to {action.value} {target}"
    else:
        groups = ", ".join(sorted(state.access.groups_of(asked))) or "no group"
        reason = f"no rule allows {asked} (in {groups}) to {action.value} {target}"
        if permissions.allows_somewhere(action):
            reason += f"; rules allow {action.value} on other objects"
    return pb.CheckAccessResponse(
        allowed=bool(decision), rule=decision.rule if permissions.is_on else "", reason=reason
    )
