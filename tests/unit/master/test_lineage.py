"""The history of a store judges positions: known, given up, newer, or not proven."""

from __future__ import annotations

from dataclasses import replace

from croupier.master.core.events import Claim
from croupier.master.core.records import MasterRecord
from croupier.master.leadership.lineage import MAX_TERMS, Lineage, Names, next_record
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


def test_positions_of_a_store_are_known_in_all_later_terms() -> None:
    store = Store()
    first = store.begin()
    store.commits += 10
    sent = first.position()
    assert (sent.epoch, sent.commit) == (1, 11)
    assert claim(first, sent) is Claim.KNOWN
    for _ in range(3):
        assert claim(store.begin(), sent) is Claim.KNOWN


def test_a_position_after_the_copy_was_made_is_newer_than_the_copy() -> None:
    store = Store()
    lineage = store.begin()
    store.commits += 5
    copy = store.copy()
    store.commits += 5
    sent = lineage.position()
    old = copy.begin(name="u")
    assert claim(old, sent) is Claim.NEWER
    assert old.overtaken_by == sent


def test_an_older_copy_with_higher_numbers_is_still_detected() -> None:
    store = Store()
    lineage = store.begin()
    copy = store.copy()
    store.commits += 5
    sent = lineage.position()
    second = store.begin()
    sent_later = second.position()
    old = copy.begin(name="u")
    copy.commits += 100
    # First with as many terms and more commits, then also with one more term.
    for each in (old, copy.begin(name="u")):
        assert claim(each, sent) is Claim.NEWER
        assert claim(each, sent_later) is Claim.NEWER


def test_a_given_up_position_deposes_no_master() -> None:
    store = Store()
    lineage = store.begin()
    early = lineage.position()
    copy = store.copy()
    store.commits += 5
    sent = lineage.position()
    accepted = copy.begin(given_up=sent, name="u")
    position = accepted.position()
    assert (position.generation, position.epoch) == (1, 2)
    assert claim(accepted, sent) is Claim.GIVEN_UP
    # An agent that has seen nothing since the copy was made has lost nothing.
    assert claim(accepted, early) is Claim.KNOWN
    assert claim(copy.begin(name="u"), sent) is Claim.GIVEN_UP
    # The newer copy is put back after all, but agents have seen the generation after it.
    assert claim(store.begin(), position) is Claim.NEWER


def test_epochs_continue_above_given_up_epochs() -> None:
    store = Store()
    store.begin()
    sent = StorePosition(3, 41, "x", 7)
    assert store.begin(given_up=sent).position().epoch == 42
    assert store.record is not None
    assert store.record.generation == 4


def test_giving_up_a_later_term_begins_a_term_above_it() -> None:
    """Otherwise its agents would drop every message of the lower epoch, without a warning."""
    store = Store()
    lineage = store.begin()
    copy = store.copy()
    store.commits += 5
    sent = lineage.position()
    for _ in range(4):
        later = store.begin().position()
    accepted = copy.begin(given_up=sent, name="u")
    assert claim(accepted, later) is Claim.NEWER
    higher = copy.begin(given_up=later, name="u")
    assert claim(higher, later) is Claim.GIVEN_UP
    assert higher.position().epoch == later.epoch + 1


def test_a_claim_without_proof_is_unproven() -> None:
    store = Store()
    lineage = store.begin()
    sent = lineage.position()
    claims = [
        replace(sent, epoch=2),
        replace(sent, commit=99),
        replace(sent, generation=1),
        replace(sent, term="x"),
        replace(sent, proof=""),
        replace(sent, proof="ä"),
    ]
    for each in claims:
        assert claim(lineage, each) is Claim.UNPROVEN
    assert lineage.judge("c", 7, sent).claim is Claim.UNPROVEN
    # An agent that lost the record of its cluster and epoch claims this.
    assert lineage.judge("", 0, sent).claim is Claim.KNOWN
    assert lineage.judge("c", 2**64 - 1, None).claim is Claim.UNPROVEN
    assert lineage.overtaken_by is None


def test_another_cluster_is_named() -> None:
    judgement = Store().begin().judge("other", 1, None)
    assert judgement.claim is Claim.FOREIGN
    assert "'other'" in judgement.objection


def test_an_agent_that_has_seen_no_position_is_accepted() -> None:
    store = Store()
    store.begin()
    lineage = store.begin()
    for epoch in (0, 1, 2):
        assert lineage.judge("c", epoch, None).claim is Claim.SILENT
    assert lineage.judge("", 0, None).claim is Claim.SILENT


def test_old_terms_are_forgotten_except_their_last_commit() -> None:
    store = Store()
    sent = store.begin().position()
    for _ in range(MAX_TERMS + 3):
        lineage = store.begin()
    assert store.record is not None
    assert len(store.record.terms) == MAX_TERMS
    assert claim(lineage, sent) is Claim.KNOWN
    far = replace(sent, commit=10_000)
    assert lineage.place(far) is Claim.NEWER


def test_no_text_holds_the_secret() -> None:
    store = Store()
    store.begin()
    assert "'secret'" not in repr(store.record)
