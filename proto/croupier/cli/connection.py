"""The connection of one command to the master that leads: calls, lists, and permissions."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import Any, Final, TypeVar

import grpc.aio

from croupier.cli.flags import Target
from croupier.model import errors
from croupier.model.access import ALL_ROLES, ANY, CLUSTER, Action, Object, agent_object, role_object
from croupier.net.address import Address
from croupier.net.credential_search import NO_CREDENTIAL, FoundCredentials, MissingCredential
from croupier.net.credentials import ClientSecurity
from croupier.net.leader_search import LeaderAnswer, LeaderSearch, leader_address
from croupier.net.transport import make_channel
from croupier.net.unary import Answering, NoSuchCall, answers_of, call_master
from croupier.v1 import access_pb2
from croupier.v1 import operator_pb2 as pb
from croupier.v1.access_pb2_grpc import AccessServiceStub
from croupier.v1.operator_pb2_grpc import OperatorServiceStub

# A command that finds no master fails within 5 s, including its own start. A large answer may
# take longer.
FIND_S = 3.5
ANSWER_S = 30.0

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")
T = TypeVar("T")
ALL_AGENTS: Final = agent_object(ANY)
EVERY_ROLE: Final = role_object(ALL_ROLES)
TOTALS: Final = CLUSTER
_NONE: Final = re.compile(r"^no (\w+)")


class Refused(errors.CroupierError):
    """The master refuses the request; trying again does not help."""


class Master:
    """A master that answered; `service` and `access` have the methods that `ask` can call."""

    def __init__(
        self, address: Address, channel: grpc.aio.Channel, security: ClientSecurity | None = None
    ) -> None:
        self.address, self.security = address, security
        self.service, self.access = OperatorServiceStub(channel), AccessServiceStub(channel)

    async def ask(
        self,
        question: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
        request: RequestT,
        timeout_s: float = ANSWER_S,
    ) -> ResponseT:
        """Return the master's answer; raises Unavailable without, CroupierError if it refuses."""
        try:
            return await _call(question, request, self, timeout_s)
        except NoSuchCall:
            raise self._older() from None

    async def answers(self, call: Answering[ResponseT]) -> AsyncGenerator[ResponseT, None]:
        """Yield the answers to an open call until it ends; raises Unavailable or CroupierError."""
        try:
            async for answer in answers_of(call, self.address, self.security):
                yield answer
        except NoSuchCall:
            raise self._older() from None
        except errors.InvalidRequest as error:
            raise Refused(str(error)) from None

    def _older(self) -> NoSuchCall:
        # It has answered GetMaster, so it is a master.
        older = f"the master at {self.address} is of an older release, which cannot do this"
        return NoSuchCall(f"{older}; upgrade it first")


async def _call(
    method: grpc.aio.UnaryUnaryMultiCallable[RequestT, ResponseT],
    request: RequestT,
    master: Master,
    timeout_s: float,
) -> ResponseT:
    """Call a master; an InvalidRequest of its own is no error of the command line."""
    try:
        return await call_master(method, request, master.address, timeout_s, master.security)
    except errors.InvalidRequest as error:
        raise Refused(str(error)) from None


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Master]:
    """Find the leading master of `target` within 3.5 s, and connect to it.

    The leader may be a master that `target` does not list, but that a follower names.

    Raises:
        InvalidRequest: if the credentials cannot be used.
        Unavailable: if none of them can be reached, or none leads.
        Unauthenticated: if the credentials are refused.
    """
    masters: dict[Address, Master] = {}
    found = target.credentials()
    found.security.check()

    async def ask(address: Address, timeout_s: float) -> LeaderAnswer:
        if address not in masters:
            channel = await stack.enter_async_context(make_channel(address, found.security))
            masters[address] = Master(address, channel, found.security)
        question = masters[address].service.GetMaster
        answer = await _call(question, pb.GetMasterRequest(), masters[address], timeout_s)
        return LeaderAnswer(answer.leader, leader_address(answer.leader_address))

    try:
        async with AsyncExitStack() as stack:
            search = LeaderSearch(ask, FIND_S, by_token=found.security.has_token)
            yield masters[await search.run(target.addresses)]
    except (errors.Unauthenticated, errors.PermissionDenied) as error:
        raise with_advice(error, found) from None


def with_advice(
    error: errors.Unauthenticated | errors.PermissionDenied, found: FoundCredentials
) -> errors.CroupierError:
    """Return the error with the credential that was used, and what to do next; once."""
    advice = _advice(error, found)
    return error if advice in str(error) else type(error)(f"{error}; {advice}")


def _advice(error: errors.CroupierError, found: FoundCredentials) -> str:
    if isinstance(error, errors.PermissionDenied):
        return f"you used {found.text}: croupier access whoami shows who you are"
    if found.text == NO_CREDENTIAL:
        where = "" if found.file is None else f", or write {found.file}"
        ways = f"give --token-file or --tls-cert{where}"
        return f"no credential was found: {ways} (croupier doctor)"
    return f"you used {found.text}: croupier doctor checks it"


def run(target: Target, question: Callable[[Master], Coroutine[Any, Any, T]]) -> T:
    """Return the leading master's answer to `question`; raises CroupierError if there is none."""

    async def asked() -> T:
        async with connected(target) as master:
            return await question(master)

    return asyncio.run(asked())


def missing_credential(target: Target) -> MissingCredential:
    """Return the advice, given once, for a command that waits without a credential."""
    return MissingCredential(target.credentials, "start again with --token-file or --tls-cert")


async def answers(master: Master, kind: str, **fields: Any) -> AsyncGenerator[Any, None]:
    """Yield every answer to a request for a list, such as `agents`; raises CroupierError."""
    method, is_token = f"List{kind.capitalize()}", kind == "tokens"
    question = getattr(master.access if is_token else master.service, method)
    request: Any = getattr(access_pb2 if is_token else pb, f"{method}Request")(**fields)
    while True:
        page: Any = await master.ask(question, request)
        yield page
        if not page.next_page_token:
            return
        if page.next_page_token == request.page_token:
            raise errors.Unavailable(f"the master at {master.address} repeats a page of its list")
        request.page_token = page.next_page_token


async def messages(master: Master, kind: str, **fields: Any) -> AsyncIterator[Sequence[Any]]:
    """Yield every page of a list, in protobuf; raises as `answers`."""
    async for page in answers(master, kind, **fields):
        yield getattr(page, kind)


async def objects(master: Master, kind: str, **fields: Any) -> AsyncIterator[Any]:
    """Yield every object of a list, in protobuf; raises as `answers`."""
    async for page in messages(master, kind, **fields):
        for each in page:
            yield each


async def first_answer(master: Master, kind: str, **fields: Any) -> Any:
    """Return the first answer to a request for a list; raises as `answers`."""
    async with aclosing(answers(master, kind, **fields)) as pages:
        return await anext(pages)


async def may_view(master: Master, target: Object) -> bool:
    """Return whether the caller may view `target`; True if the master does not tell.

    A list that is empty only for the caller is never called empty.
    """
    request = access_pb2.CheckAccessRequest(action=Action.VIEW.value, object=str(target))
    try:
        return (await master.ask(master.access.CheckAccess, request)).allowed
    except errors.CroupierError:
        return True


def restricted(empty: str) -> str:
    """Return the words for an empty list, such as `no agents are registered`, of what is visible.

    They are for callers that may not view all objects of the kind.
    """
    return _NONE.sub(r"no \1 that you may view", empty)
