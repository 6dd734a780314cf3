"""Compare what frameworks recorded about holds and messages with what there is. Pure.

Rule: a hold that was made is there until its framework releases it or its time is over, and nobody
else is offered it. A message arrives at most once, and only where it was sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tests.chaos.real.checker import Violation
from tests.chaos.real.journal import (
    Entry,
    HoldAnswered,
    HoldAsked,
    HoldOffered,
    MessageAsked,
    MessageHeard,
    ReleaseAnswered,
    ReleaseAsked,
)
from tests.chaos.real.ledger import Ledger
from tests.chaos.real.work import VOLUME, HoldWork

Journals = Mapping[str, Sequence[Entry]]


@dataclass(slots=True)
class HoldHistory:
    """The ids of the holds that frameworks recorded.

    Attributes:
        released: those that were there until they were released.
        gone: those that were not there when they were to be released.
    """

    asked: set[str] = field(default_factory=set)
    made: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    offered: set[str] = field(default_factory=set)
    releasing: set[str] = field(default_factory=set)
    released: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def unsettled(self) -> AbstractSet[str]:
        """Return those without a verdict that may exist."""
        return self.asked - self.made - self.refused - self.released - self.gone


def hold_history(entries: Iterable[Entry]) -> HoldHistory:
    """Return what was recorded about holds."""
    found = HoldHistory()
    for entry in entries:
        match entry:
            case HoldAsked(hold_id):
                found.asked.add(hold_id)
            case HoldAnswered(hold_id, error):
                (found.refused if error else found.made).add(hold_id)
            case HoldOffered(hold_id):
                found.offered.add(hold_id)
            case ReleaseAsked(hold_id):
                found.releasing.add(hold_id)
            case ReleaseAnswered(hold_id, error):
                (found.gone if error else found.released).add(hold_id)
    return found


def check_holds(journals: Journals) -> list[Violation]:
    """Return the holds that a framework was offered or could release, and should not."""
    found = []
    for name, entries in journals.items():
        holds = hold_history(entries)
        wrong = holds.offered - holds.asked
        found += [
            Violation("hold_of_another", hold, f"offered to {name}") for hold in sorted(wrong)
        ]
        wrong = holds.refused & (holds.offered | holds.released)
        found += [Violation("hold_unasked", hold, "it was refused") for hold in sorted(wrong)]
    return found


def check_listed(
    works: Callable[[str], HoldWork], before: Journals, listed: AbstractSet[str], after: Journals
) -> list[Violation]:
    """Compare the holds that the master lists with the journals before and after that."""
    old = hold_history(entry for entries in before.values() for entry in entries)
    new = hold_history(entry for entries in after.values() for entry in entries)
    lasting = {hold for hold in old.made - new.releasing if works(hold).ttl_s is None}
    lost = sorted(lasting - listed)
    left = sorted(listed & (old.released | old.gone | old.refused))
    unasked = sorted(listed - new.asked)
    return [
        *(Violation("hold_lost", hold, "it is not listed") for hold in lost),
        *(Violation("hold_leak", hold, "it has ended, or was refused") for hold in left),
        *(Violation("hold_unasked", hold, "no framework requested it") for hold in unasked),
    ]


def check_messages(journals: Journals, ran: Ledger) -> Iterator[Violation]:
    """Yield the messages that arrived twice, or where they were not sent."""
    asked: set[tuple[str, int]] = set()
    answers: Counter[tuple[str, int]] = Counter()
    for name, entries in journals.items():
        mine: set[tuple[str, int]] = set()
        for entry in entries:
            match entry:
                case MessageAsked(executor_id, number):
                    mine.add((executor_id, number))
                case MessageHeard(executor_id, number):
                    answers[executor_id, number] += 1
                    if (executor_id, number) not in mine:
                        yield Violation("message_unasked", executor_id, f"{number} to {name}")
        asked |= mine
    for where, heard in (("executor", ran.heard), ("framework", answers)):
        for (executor_id, number), times in heard.items():
            if times > 1:
                yield Violation("message_twice", executor_id, f"{number} to the {where}")
    for executor_id, number in sorted(ran.heard.keys() - asked):
        yield Violation("message_unasked", executor_id, f"{number} was not sent")


def counts(journals: Journals, ran: Ledger) -> Counter[str]:
    """Return how many holds and messages there were."""
    entries = [entry for each in journals.values() for entry in each]
    holds = hold_history(entries)
    return Counter(
        {
            "holds made": sum(VOLUME not in hold for hold in holds.made),
            "volumes made": sum(VOLUME in hold for hold in holds.made),
            "uses of volumes": len(ran.saw),
            "holds released": len(holds.released),
            "holds gone before their release": len(holds.gone & holds.made),
            "messages heard": len(ran.heard),
            "messages answered": sum(isinstance(entry, MessageHeard) for entry in entries),
            "messages sent": sum(isinstance(entry, MessageAsked) for entry in entries),
        }
    )
