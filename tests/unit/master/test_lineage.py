"""The history of a store: what belongs to it, what was given up, and what is a lie."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord
from croupier.master.lineage import MAX_TERMS, Lineage, Names, next_record
from croupier.model.store_position import StorePosition


class Store:
    """Terms that follow each other, and a number of commits."""

    def __init__(self) -> None:
        self.record: MasterRecord | None = None
        self.commits = 0
        self._terms = 0

    def begin(self, given_up: StorePosition | None = None, name: str = "t") -> Lineage:
        self._terms += 1
        names = Names("c", "secret", f"{name}{self._terms}")
        self.record = next_record(self.record, self.commits, names, given_up)
        self.commits += 1
        return Lineage(self.record, lambda: self.commits)

    def copy(self) -> Store:
        made = Store()
        made.record, made.commits, made._terms = self.record, self.commits, self._terms
        return made


def claim(lineage: Lineage, position: StorePosition) -> Claim:
    return lineage.judge("c", position.epoch, position).claim


def test_what_a_store_has_told_it_knows_and_its_successors_do() -> None:
    store = Store()
    first = store.begin()
    store.commits += 10
    told = first.position()
    assert (told.epoch, told.commit) == (1, 11)
    assert claim(first, told) is Claim.KNOWN
    for _ in range(3):
        assert claim(store.begin(), told) is Claim.KNOWN


def test_an_older_copy_does_not_know_what_was_told_since() -> None:
    store = Store()
    lineage = store.begin()
    store.commits += 5
    copy = store.copy()
    store.commits += 5
    told = lineage.position()
    old = copy.begin(name="u")
    assert claim(old, told) is Claim.NEWER
    assert old.overtaken_by == told


def test_an_older_copy_that_has_overtaken_in_numbers_is_known_all_the_same() -> None:
    store = Store()
    lineage = store.begin()
    copy = store.copy()
    store.commits += 5
    told = lineage.position()
    second = store.begin()
    told_later = second.position()
    old = copy.begin(name="u")
    copy.commits += 100
    # As many terms, and more commits; and one term more.
    for each in (old, copy.begin(name="u")):
        assert claim(each, told) is Claim.NEWER
        assert claim(each, told_later) is Claim.NEWER


def test_what_was_given_up_deposes_nobody_any_more() -> None:
    store = Store()
    lineage = store.begin()
    early = lineage.position()
    copy = store.copy()
    store.commits += 5
    told = lineage.position()
    accepted = copy.begin(given_up=told, name="u")
    position = accepted.position()
    assert (position.generation, position.epoch) == (1, 2)
    assert claim(accepted, told) is Claim.GIVEN_UP
    # An agent that has heard nothing since the copy was made has lost nothing.
    assert claim(accepted, early) is Claim.KNOWN
    assert claim(copy.begin(name="u"), told) is Claim.GIVEN_UP
    # The newer copy is put back after all: agents know better by now.
    assert claim(store.begin(), position) is Claim.NEWER


def test_epochs_go_on_above_those_that_were_given_up() -> None:
    store = Store()
    store.begin()
    told = StorePosition(3, 41, "x", 7)
    assert store.begin(given_up=told).position().epoch == 42
    assert store.record is not None
    assert store.record.generation == 4


def test_a_given_up_term_above_the_present_one_takes_a_term_above_it() -> None:
    """Otherwise its agents would drop every message of the lower epoch, without a warning."""
    store = Store()
    lineage = store.begin()
    copy = store.copy()
    store.commits += 5
    told = lineage.position()
    for _ in range(4):
        later = store.begin().position()
    accepted = copy.begin(given_up=told, name="u")
    assert claim(accepted, later) is Claim.NEWER
    higher = copy.begin(given_up=later, name="u")
    assert claim(higher, later) is Claim.GIVEN_UP
    assert higher.position().epoch == later.epoch + 1


def test_a_claim_without_proof_is_worth_nothing() -> None:
    store = Store()
    lineage = store.begin()
    told = lineage.position()
    lies = [
        replace(told, epoch=2),
        replace(told, commit=99),
        replace(told, generation=1),
        replace(told, term="x"),
        replace(told, proof=""),
        replace(told, proof="ä"),
    ]
    for lie in lies:
        assert claim(lineage, lie) is Claim.UNPROVEN
    assert lineage.judge("c", 7, told).claim is Claim.UNPROVEN
    # As of an agent that has lost the record of its cluster and epoch.
    assert lineage.judge("", 0, told).claim is Claim.KNOWN
    assert lineage.judge("c", 2**64 - 1, None).claim is Claim.UNPROVEN
    assert lineage.overtaken_by is None


def test_another_cluster_is_named() -> None:
    judgement = Store().begin().judge("other", 1, None)
    assert judgement.claim is Claim.FOREIGN
    assert "'other'" in judgement.objection


def test_agents_of_before_there_were_positions_are_taken_in() -> None:
    store = Store()
    store.record = MasterRecord("c", 6)
    lineage = store.begin()
    assert store.record is not None
    assert store.record.secret == "secret"
    for epoch in (0, 6, 7):
        assert lineage.judge("c", epoch, None).claim is Claim.SILENT
    assert lineage.judge("", 0, None).claim is Claim.SILENT


def test_a_store_without_a_secret_proves_nothing() -> None:
    lineage = Lineage(MasterRecord("c", 1), lambda: 1)
    assert claim(lineage, lineage.position()) is Claim.UNPROVEN


def test_old_terms_are_forgotten_but_not_how_far_they_came() -> None:
    store = Store()
    told = store.begin().position()
    for _ in range(MAX_TERMS + 3):
        lineage = store.begin()
    assert store.record is not None
    assert len(store.record.terms) == MAX_TERMS
    assert claim(lineage, told) is Claim.KNOWN
    far = replace(told, commit=10_000)
    assert lineage.place(far) is Claim.NEWER


def test_no_text_holds_the_secret() -> None:
    store = Store()
    store.begin()
    assert "'secret'" not in repr(store.record)
