"""Records as rows: every kind round-trips."""

from __future__ import annotations

from typing import get_args

import pytest

from croupier.master.core.access_records import (
    ForgetToken,
    GroupRecord,
    RuleRecord,
    TokenId,
    TokenKind,
    TokenRecord,
)
from croupier.master.core.records import (
    AgentRecord,
    ForgetAgent,
    ForgetRole,
    FrameworkRecord,
    MasterRecord,
    Record,
    RoleRecord,
)
from croupier.master.store.rows import (
    _STORED,
    NewerRecord,
    Row,
    Rows,
    _joined,
    converted,
    decode,
    encode,
)
from croupier.model.access import Action, Rule
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.v1 import storage_pb2 as pb

RECORDS: list[Record] = [
    MasterRecord("c1", 3),
    AgentRecord(AgentId("c1-3-A1"), "host"),
    FrameworkRecord(FrameworkId("c1-3-F1"), "näme", (Role("ads"), Role("*")), 600, True),
    RoleRecord(Role("ads/prod"), RoleSettings(2000, {"gpus": 3000}, {"cpus": 1}, {"mem": 0}, True)),
    AgentRecord(AgentId("c1-3-A2"), "host", total=Resources.parse("cpus:4;mem:4GB")),
    AgentRecord(AgentId("c1-3-A3"), "host", is_authenticated=True),
    FrameworkRecord(
        FrameworkId("F"), "n", (Role("*"),), 1, owner=PrincipalName("oidc/https://a/u")
    ),
    GroupRecord("ops", frozenset({"client/b", "oidc:a/b", "client/a"})),
    RuleRecord(Rule("r", "group:ops", (Action.RUN_AS, Action.VIEW), "user:(agent)")),
    TokenRecord(TokenId("0000000a"), TokenKind.JOIN, PrincipalName(""), "f" * 64, 5, uses_left=0),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_round_trips(record: Record) -> None:
    row = encode(record)
    assert row.body is not None
    assert decode(row.kind, row.body) == record


def test_kinds_and_ids_of_rows_are_those_of_older_stores() -> None:
    assert encode(MasterRecord("c1", 3))[:2] == ("master", "master")
    assert encode(RECORDS[1])[:2] == ("agent", "c1-3-A1")
    assert encode(RECORDS[3])[:2] == ("role", "ads/prod")


def test_kinds_and_ids_of_access() -> None:
    kinds = [encode(each)[:2] for each in RECORDS[-3:]]
    assert kinds == [("group", "ops"), ("rule", "r"), ("token", "0000000a")]
    assert encode(ForgetToken(TokenId("0000000a"))) == Row("token", "0000000a", None)


def test_a_forget_record_is_a_row_without_a_body() -> None:
    assert encode(ForgetAgent(AgentId("A"))) == Row("agent", "A", None)
    assert encode(ForgetRole(Role("ads/prod"))) == Row("role", "ads/prod", None)


def test_every_record_has_a_kind() -> None:
    stored = [cls for each in _STORED for cls in (each.record, each.forget) if cls is not None]
    assert len(set(stored)) == len(stored)
    assert set(stored) == set(get_args(Record))


def test_ids_of_several_parts_are_unambiguous() -> None:
    ids = [_joined(iter(parts)) for parts in (("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"))]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("agent", b"{", "not a record of the kind 'agent': it is damaged"),
        ("agent", b"\x0a\x01\xff", "not a record of the kind 'agent'"),
        ("master", b"\xff" * 100, "not a record of the kind 'master'"),
        ("task", pb.TaskRecord(task=b"\xff").SerializeToString(), "'task': it is damaged"),
        ("cat", b"", "records of the kind 'cat' are not known to this release"),
    ],
)
def test_an_invalid_body_is_refused(kind: str, body: bytes, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(kind, body)
    assert says in str(refused.value)
    assert isinstance(refused.value, NewerRecord) == (kind == "cat")


def test_fields_of_a_newer_release_survive_until_the_record_is_forgotten() -> None:
    rows, other = Rows(), encode(AgentRecord(AgentId("B"), "host"))
    row = encode(AgentRecord(AgentId("A"), "host"))
    # Field 100 with the text "new".
    newer = b"\xa2\x06\x03new"
    assert row.body is not None
    record = rows.decode("agent", row.body + newer)
    assert record == AgentRecord(AgentId("A"), "host")
    changed = AgentRecord(AgentId("A"), "host", gone=True)
    assert rows.encode(changed).body == (encode(changed).body or b"") + newer
    assert rows.encode(AgentRecord(AgentId("B"), "host")) == other
    rows.encode(ForgetAgent(AgentId("A")))
    assert rows.encode(changed) == encode(changed)


@pytest.mark.parametrize(
    ("kind", "body"), [("cat", "{}"), ("agent", "{"), ("agent", '{"planet": 1}'), ("role", "[]")]
)
def test_an_invalid_record_of_the_older_form_is_refused(kind: str, body: str) -> None:
    with pytest.raises(InvalidRequest, match="not a record of the kind"):
        converted(kind, body)
