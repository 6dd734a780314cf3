"""The running masters: what is read from etcd, and what each master lists."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from croupier.master.leadership.roster import (
    MOST_BYTES,
    Candidate,
    Roster,
    is_page_url,
    read_candidate,
)

M1 = Candidate("m1:5050", "http://m1:5080", "0.9.0", 1_000, "c1-4", 4, 2_000)
M2 = Candidate("m2:5050", "https://[fe80::1]:5080", "0.9.0+g1a", 1_500)
M3 = Candidate("m3:5050")


def roster(own: Candidate, others: tuple[Candidate, ...], leader: str) -> Roster:
    leadership = SimpleNamespace(leader=leader)
    return Roster(cast("Any", leadership), lambda: own, lambda: others)


@pytest.mark.parametrize("one", [M1, M2, M3])
def test_what_a_master_tells_is_read_back(one: Candidate) -> None:
    assert read_candidate(one.address, one.encode()) == one
    told = {**json.loads(one.encode()), "of_a_newer_release": [1]}
    assert read_candidate(one.address, json.dumps(told).encode()) == one


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        b"[]",
        b"null",
        b"[" * 900,
        b'{"since_ms": "1"}',
        b'{"since_ms": -1}',
        b'{"since_ms": true}',
        b'{"epoch": 1e300}',
        b'{"epoch": 9007199254740993}',
        b'{"version": "<b>"}',
        b'{"version": 1}',
        b'{"master_id": "a\\nb"}',
        b'{"http": "javascript:alert(1)"}',
        b'{"http": "http://m1:5080; script-src *"}',
        b'{"http": "http://m1:5080/path"}',
        b'{"http": "http://m1:5080\\n"}',
        M1.encode() + b" " * MOST_BYTES,
    ],
)
def test_a_value_of_another_form_counts_as_absent(value: bytes) -> None:
    assert read_candidate("m1:5050", value) is None


@pytest.mark.parametrize("address", ["", "m1", "m1:x", "m1:5050/x", "m 1:5050", " m1:5050"])
def test_a_key_without_an_address_counts_as_absent(address: str) -> None:
    assert read_candidate(address, M1.encode()) is None


def test_the_leader_comes_first_and_each_master_once() -> None:
    stale = replace(M2, version="old")
    for own, others in ((M2, (M1, stale, M3)), (M1, (M3, M2))):
        listed = roster(own, others, "m1:5050").masters()
        assert [(each.address, each.leader) for each in listed] == [
            ("m1:5050", True),
            ("m2:5050", False),
            ("m3:5050", False),
        ]
        if own is M2:
            assert listed[1].version == "0.9.0+g1a"


def test_a_leader_that_writes_no_key_is_listed_by_its_address() -> None:
    known = roster(M2, (M3,), "m1:5050")
    assert [(each.address, each.leader, each.version) for each in known.masters()] == [
        ("m1:5050", True, ""),
        ("m2:5050", False, "0.9.0+g1a"),
        ("m3:5050", False, ""),
    ]
    assert [each.address for each in known.masters(only_leader=True)] == ["m1:5050", "m2:5050"]
    assert known.page_of("m1:5050") == ""


def test_no_leader_is_listed_while_there_is_none() -> None:
    known = roster(M1, (M2, M3), "")
    assert not any(each.leader for each in known.masters())
    assert known.page_of("m2:5050") == "https://[fe80::1]:5080"
    assert known.other_pages() == ["https://[fe80::1]:5080"]


def test_the_page_may_connect_to_addresses_only() -> None:
    assert is_page_url("http://10.0.0.1:5080")
    assert not is_page_url("http://m1:5080 *")
    assert not is_page_url("http://*:5080")


def test_a_user_of_an_encrypted_page_is_sent_to_no_other_one() -> None:
    own = Candidate("m1:1", "https://m1:5051")
    plain = Candidate("m2:1", "http://m2:80")
    encrypted = Candidate("m3:1", "https://m3:5051")
    known = roster(own, (plain, encrypted), "m1:1")
    assert known.other_pages() == ["https://m3:5051"]
    assert known.page_of("m2:1") == ""
    pages = {view.address: view.http_address for view in known.masters()}
    assert pages == {"m1:1": own.http, "m2:1": "", "m3:1": encrypted.http}
