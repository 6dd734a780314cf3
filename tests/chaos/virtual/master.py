"""A master process: the production batch in virtual time, with terms.

Rule: nothing is decided while a commit is under way. A term ends when the lease cannot be proven,
when a commit fails or is fenced, and when the core learns that another master leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from croupier.master.allocator import Allocator
from croupier.master.batch import Batch
from croupier.master.core.effects import (
    AccessChanged,
    Answer,
    Close,
    Deposed,
    Effect,
    Happened,
    Save,
    Send,
    SessionId,
)
from croupier.master.core.events import Claim, SessionEnded
from croupier.master.core.messages import Heartbeat, Registered, ToAgent, ToFramework
from croupier.master.core.records import MasterRecord, Record
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state import State
from croupier.master.core.state_recovery import recover_state
from croupier.master.core.step import Event
from croupier.master.leadership.lineage import Lineage, Names, next_record
from croupier.master.wire.to_agent import response_to_wire
from croupier.model.agent_orders import AcknowledgeUpdate, LaunchGroup, LaunchTask
from croupier.model.errors import CroupierError, FailedOver, NotLeader
from croupier.model.store_position import StorePosition
from croupier.v1.agent_pb2 import AgentServiceConnectResponse
from tests.chaos.virtual import registry as reg
from tests.chaos.virtual.clock import TracedClock
from tests.chaos.virtual.network import End, Ended, Network
from tests.chaos.virtual.process import Process
from tests.chaos.virtual.term import Asked, Introduced, Ordered, Term
from tests.harness.invariants import check_state

if TYPE_CHECKING:
    from tests.chaos.virtual.judge import Judge

COMMIT_TIMEOUT_S = 4.0


class MasterProcess(Process):
    """A master.

    Attributes:
        term: its term while it believes that it leads.
        commits_first: for a mutant: False performs a batch before it is durable.
        acknowledges_first: for a mutant: True sends acknowledgements before the commit.
        accepts_old: whether it accepts an old copy of the store instead of ending.
    """

    commits_first = True
    acknowledges_first = False

    def __init__(
        self,
        name: str,
        clock: TracedClock,
        network: Network,
        seed: str,
        settings: Settings,
        ttl_s: float,
        judge: Judge,
    ) -> None:
        """Create a process that does not run; with `ttl_s` 0 it is the only master."""
        super().__init__(name, clock, network, seed)
        self.settings, self.ttl_s, self.judge = settings, ttl_s, judge
        self.term: Term | None = None
        self.leader = ""
        self.accepts_old = False
        self.steps = 0
        self._overtaken_by: StorePosition | None = None
        self._registry: End | None = None
        self._alive_until = 0.0
        self._beats: dict[int, float] = {}
        self._numbers = count(1)
        self._session_numbers = count(1)
        self._commit: tuple[int, list[Effect]] | None = None
        self._asked: dict[int, Callable[[object], None]] = {}

    # The life of the process.

    def on_start(self) -> None:
        """Start a campaign to lead."""
        self._reach_registry()
        if self.ttl_s:
            self._keep_alive()

    def on_crash(self) -> None:
        """Forget everything that was not durable."""
        self.term, self._commit, self._registry = None, None, None
        self._overtaken_by = None
        self.leader = ""
        self._asked.clear()

    def ask(self, make_event: Callable[[int], Event], answered: Callable[[object], None]) -> None:
        """Queue an operator's request."""
        self.put(Asked(make_event, answered))

    # Leading.

    def _reach_registry(self) -> None:
        self._registry = self.network.connect(self.name, reg.NAME, self)
        self._registry.send(reg.Campaign(self._candidate))

    def _keep_alive(self) -> None:
        number = next(self._numbers)
        self._beats[number] = self.clock.now()
        if self._registry is not None:
            self._registry.send(reg.KeepAlive(self._candidate, number))
        self.later(self.ttl_s / 3, self._keep_alive)

    @property
    def _candidate(self) -> str:
        """The name of this run of the program in the election."""
        return f"{self.name}/{self.life}"

    def _lease_holds(self) -> bool:
        return not self.ttl_s or self.clock.now() < self._alive_until

    def _on_registry(self, message: object) -> None:
        match message:
            case Ended():
                self._end_term("the registry has hung up")
                self._reach_registry()
            case reg.KeepAlive(_, number):
                sent_at = self._beats.pop(number)
                self._alive_until = max(self._alive_until, sent_at + 0.8 * self.ttl_s)
            case reg.LeaderIs(name):
                self.leader = name
                if self.term is not None and name != self.name:
                    self._end_term(f"{name} leads")
            case reg.Elected():
                self._on_elected(message)
            case reg.Committed():
                self._on_committed(message)

    def _on_elected(self, elected: reg.Elected) -> None:
        revision, known = elected.revision, elected.registry
        self.leader = self.name
        assert self._registry is not None
        if not self._lease_holds():
            self._registry.send(reg.Resign(revision))
            self._registry.send(reg.Campaign(self._candidate))
            return
        given_up = self._unknown_to(elected)
        if given_up is not None and not self.accepts_old:
            self.clock.trace(f"{self.name} refuses its store: {given_up} is not known")
            self.crash(loses=False)
            self.judge.on_refused(given_up)
            return
        names = Names("c", "secret", f"{self.name}.{self.life}.{next(self._numbers)}")
        record = next_record(known.master, elected.commits, names, given_up)
        state = recovered(known, record, self.settings, self.clock.now())
        self.clock.trace(f"{self.name} leads as {record.master_id}")
        self.term = Term(self.name, record, revision, state, elected.commits)
        self._begin_commit([Save(record)], [record])

    def _unknown_to(self, elected: reg.Elected) -> StorePosition | None:
        """Return the position that ended the last term, if the store does not know it."""
        claim, self._overtaken_by = self._overtaken_by, None
        record = elected.registry.master or MasterRecord("c", 0)
        lineage = Lineage(record, lambda: elected.commits)
        return None if claim is None or lineage.place(claim) is Claim.KNOWN else claim

    def _end_term(self, why: str) -> None:
        if self.term is None:
            return
        self.clock.trace(f"{self.name} leads no more: {why}")
        term, self.term, self._commit = self.term, None, None
        self._asked.clear()
        leader = "" if self.leader == self.name else self.leader
        for end in list(term.sessions.values()):
            end.close(NotLeader(why, leader))
        if self._registry is not None:
            self._registry.send(reg.Resign(term.revision))
            self._registry.send(reg.Campaign(self._candidate))

    # Deciding.

    def turn(self) -> None:
        """Handle messages about leadership, and decide a batch if no commit is under way."""
        items = self.taken()
        own = [message for end, message in items if end is not None and end is self._registry]
        others = [
            (end, message)
            for end, message in items
            if end is None or (end is not self._registry and end.peer_name != reg.NAME)
        ]
        # In a real master the order of these is random.
        leadership_first = self.random.random() < 0.5
        if leadership_first:
            self._take_leadership(own)
        if self._commit is not None:
            self._inbox = others + self._inbox
        else:
            self._decide(others)
        if not leadership_first:
            self._take_leadership(own)

    def _take_leadership(self, messages: list[object]) -> None:
        for message in messages:
            self._on_registry(message)
        if self.term is not None and not self._lease_holds():
            self._end_term("the lease cannot be proven")

    def _decide(self, items: list[tuple[End | None, object]]) -> None:
        term = self.term
        if term is None:
            for end, message in items:
                if end is not None and not isinstance(message, Ended):
                    end.close(NotLeader("another master leads", self.leader))
            return
        batch = Batch(term.state, partial(self._on_decided, term))
        found = (self._event_of(term, end, message) for end, message in items)
        now = self.clock.now()
        for _ in batch.decide((event for event in found if event is not None), now):
            pass
        if term.state.allocator.has_dirty_agents:
            for _ in batch.allocate(now):
                pass
        try:
            records = batch.records()
        except FailedOver:
            self._overtaken_by = term.lineage.overtaken_by
            self._end_term("an agent has seen a newer master")
        else:
            self._begin_commit(batch.effects, records)

    def _event_of(self, term: Term, end: End | None, message: object) -> Event | None:
        if end is None:
            assert isinstance(message, Asked)
            request = next(self._numbers)
            self._asked[request] = message.answered
            return message.make_event(request)
        session = term.peers.get(end)
        if isinstance(message, Ended):
            if session is None:
                return None
            self._drop(term, session)
            return SessionEnded(session, str(message.error))
        if session is None:
            if not end.is_open:
                return None
            session = SessionId(next(self._session_numbers))
            term.peers[end], term.sessions[session] = session, end
            self._beat(term, session)
        if isinstance(message, Introduced):
            judgement = term.lineage.judge(message.cluster, message.epoch, message.position)
            register = message.register(session)
            listed = zip(register.tasks, message.proofs, strict=True)
            tasks = tuple(term.proofs.judged(task, proof) for task, proof in listed)
            return replace(
                register, claim=judgement.claim, objection=judgement.objection, tasks=tasks
            )
        assert callable(message)
        event: Event = message(session)
        return event

    def _drop(self, term: Term, session: SessionId) -> None:
        end = term.sessions.pop(session, None)
        if end is not None:
            del term.peers[end]

    def _on_decided(self, term: Term, event: Event, _now: float, effects: Sequence[Effect]) -> None:
        self.steps += 1
        check_state(term.state)
        self.judge.on_decided(term, event, effects)

    def _begin_commit(self, effects: list[Effect], records: list[Record]) -> None:
        assert self.term is not None
        if not records or not self.commits_first:
            self._perform(effects)
        elif self.acknowledges_first:
            effects = self._acknowledged(effects)
        if records:
            number = next(self._numbers)
            self._commit = (number, effects if self.commits_first else [])
            assert self._registry is not None
            self._registry.send(reg.Commit(self.term.revision, number, tuple(records)))
            self.later(COMMIT_TIMEOUT_S, lambda: self._on_slow_commit(number))

    def _acknowledged(self, effects: list[Effect]) -> list[Effect]:
        """Send acknowledgements now, and return the other effects."""
        acks = [
            each
            for each in effects
            if isinstance(each, Send) and isinstance(each.message, AcknowledgeUpdate)
        ]
        self._perform(list(acks))
        return [each for each in effects if each not in acks]

    def _on_slow_commit(self, number: int) -> None:
        if self._commit is not None and self._commit[0] == number:
            self._end_term("a commit was not confirmed in time")

    def _on_committed(self, answer: reg.Committed) -> None:
        if self._commit is None or self._commit[0] != answer.number or self.term is None:
            return
        effects, self._commit = self._commit[1], None
        self.term.commits = answer.commits
        if answer.is_fenced:
            self._end_term("a commit was fenced off")
            return
        if not self._lease_holds() and self.random.random() < 0.8:
            # Otherwise, this models a process that was paused between this check and the next step.
            self._end_term("the lease cannot be proven")
            return
        self._perform(effects)
        self.wake(self.clock.now())

    def _perform(self, effects: list[Effect]) -> None:
        term = self.term
        assert term is not None
        for effect in effects:
            match effect:
                case Send(session, message):
                    self._tell(term, session, message)
                case Close(session, error):
                    self._close(term, session, error)
                case Answer(request, result):
                    answered = self._asked.pop(request, None)
                    if answered is not None:
                        answered(result)
                case Save(record):
                    if isinstance(record, MasterRecord):
                        self.judge.on_term(self.name, record.epoch)
                case Happened() | Deposed() | AccessChanged():
                    pass
        wait = term.state.next_deadline()
        self.wake(self.clock.now() if term.state.allocator.has_dirty_agents else wait)

    def _tell(self, term: Term, session: SessionId, message: ToAgent | ToFramework) -> None:
        end = term.sessions.get(session)
        if end is None:
            return
        self.judge.on_sent(term, session, message)
        is_agent = end.peer_name.startswith("agent")
        if is_agent:
            if isinstance(message, Registered):
                term.agent_ids[session] = message.agent_id
            if isinstance(message, LaunchTask):
                message = term.proofs.proven(message, term.agent_ids[session])
            if isinstance(message, LaunchGroup):
                agent_id = term.agent_ids[session]
                proven = tuple(term.proofs.proven(each, agent_id) for each in message.tasks)
                message = LaunchGroup(proven)
            heading = AgentServiceConnectResponse.FromString(
                response_to_wire([], term.epoch, term.lineage)
            )
            end.send(Ordered(term.epoch, message, heading))  # type: ignore[arg-type]
        else:
            end.send(message)

    def _close(self, term: Term, session: SessionId, error: CroupierError | None) -> None:
        end = term.sessions.get(session)
        if end is not None:
            end.close(error)
            self._drop(term, session)

    def _beat(self, term: Term, session: SessionId) -> None:
        if self.term is term and session in term.sessions:
            self._tell(term, session, Heartbeat())
            self.later(self.settings.heartbeat_s, lambda: self._beat(term, session))


def recovered(known: Registry, record: MasterRecord, settings: Settings, now: float) -> State:
    """Return the state with which a new leader begins."""
    return recover_state(known, record.master_id, settings, Allocator(), now)
