"""Redirects are followed, but not in circles and not to dead masters."""

from __future__ import annotations

from croupier.model.errors import NotLeader, Unavailable
from croupier.net.address import Address
from croupier.net.leader_search import MAX_HOPS, Masters

A, B, C, D = (Address("host", port) for port in (1, 2, 3, 4))
GONE = Unavailable("gone")


def not_leader(leader: Address | None) -> NotLeader:
    return NotLeader("not the leader", str(leader or ""))


def test_without_a_named_leader_the_list_is_tried_in_turn() -> None:
    masters = Masters([A, B])
    for address in (A, B, A, B):
        assert masters.next() == address
        assert not masters.failed(not_leader(None) if address == A else GONE)


def test_a_named_leader_is_next_at_once_even_if_it_is_not_listed() -> None:
    masters = Masters([A, B, C])
    assert masters.next() == A
    assert masters.failed(not_leader(D))
    assert masters.next() == D
    masters.served()
    assert not masters.failed(GONE)
    assert masters.next() == B


def test_a_circle_of_redirects_ends_after_some_hops() -> None:
    masters = Masters([A, B])
    hops = 0
    address = masters.next()
    while masters.failed(not_leader(B if address == A else A)):
        address = masters.next()
        hops += 1
    assert hops == MAX_HOPS
    masters.next()
    assert not masters.failed(GONE)


def test_a_redirect_to_a_master_just_found_dead_is_ignored() -> None:
    masters = Masters([A, B])
    assert masters.next() == A
    masters.served()
    assert not masters.failed(GONE)
    assert masters.next() == B
    assert not masters.failed(not_leader(A))
    # It may be back by now: it need not be in the list.
    assert masters.next() == A
    assert not masters.failed(GONE)
    assert masters.next() == B
    assert not masters.failed(not_leader(A))
    assert masters.next() == A


def test_an_unlisted_leader_is_tried_again_after_a_wait() -> None:
    masters = Masters([B])
    assert masters.next() == B
    assert masters.failed(not_leader(A))
    assert masters.next() == A
    assert not masters.failed(GONE)
    assert masters.next() == B
    assert not masters.failed(not_leader(A))
    assert masters.next() == B
    assert masters.failed(not_leader(A))
    assert masters.next() == A


def test_a_redirect_to_itself_or_to_no_address_is_ignored() -> None:
    masters = Masters([A])
    assert masters.next() == A
    assert not masters.failed(not_leader(A))
    assert not masters.failed(NotLeader("?", "nonsense"))
    assert not masters.failed(NotLeader("?", "x:99999999"))


def test_a_leader_on_another_machine_is_not_followed_from_loopback_only() -> None:
    here, there = Address("127.0.0.1", 1), Address("localhost", 2)
    masters = Masters([here], only_loopback=True)
    assert masters.next() == here
    assert not masters.failed(not_leader(D))
    assert masters.next() == here
    assert masters.failed(not_leader(there))
    assert masters.next() == there
