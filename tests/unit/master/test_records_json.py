"""Records as rows: every kind round-trips."""

from __future__ import annotations

import json
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
from croupier.master.store.records_json import _STORED, NewerRecord, Row, _joined, decode, encode
from croupier.model.access import Action, Rule
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role
from croupier.model.principal import PrincipalName
from croupier.model.resources import NOTHING, Resources
from croupier.model.roles import RoleSettings

RECORDS: list[Record] = [
    MasterRecord("c1", 3),
    AgentRecord(AgentId("c1-3-A1"), "host"),
    FrameworkRecord(FrameworkId("c1-3-F1"), "näme\ud800", (Role("ads"), Role("*")), 600, True),
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
    assert decode(row.kind, row.body.encode()) == record


def test_kinds_and_ids_of_rows_are_those_of_older_stores() -> None:
    assert encode(MasterRecord("c1", 3))[:2] == ("master", "master")
    assert encode(RECORDS[1])[:2] == ("agent", "c1-3-A1")
    assert encode(RECORDS[3])[:2] == ("role", "ads/prod")


def test_kinds_and_ids_of_access() -> None:
    kinds = [encode(each)[:2] for each in RECORDS[-3:]]
    assert kinds == [("group", "ops"), ("rule", "r"), ("token", "0000000a")]
    assert encode(ForgetToken(TokenId("0000000a"))) == Row("token", "0000000a", None)
    body = encode(RECORDS[-3]).body
    assert body == '{"name":"ops","members":["client/a","client/b","oidc:a/b"]}', "in order"


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


def test_a_body_without_later_fields_is_read() -> None:
    body = {"framework_id": "F", "name": "n", "role": "ads", "failover_timeout_s": 1.0}
    expected = FrameworkRecord(FrameworkId("F"), "n", (Role("ads"),), 1.0)
    assert decode("framework", json.dumps(body)) == expected
    body = {**body, "removed": False, "roles": ["ads"]}
    assert decode("framework", json.dumps(body)) == expected
    body = {"agent_id": "A", "hostname": "host"}
    assert decode("agent", json.dumps(body)) == AgentRecord(AgentId("A"), "host", total=NOTHING)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("agent", "{", "not a record of the kind 'agent'"),
        ("agent", "[]", "is not a dict"),
        ("agent", '{"agent_id": "A"}', "'hostname' is missing"),
        ("agent", '{"agent_id": 1, "hostname": "h"}', "is not a str"),
        ("agent", b"\xff", "not a record of the kind 'agent'"),
        ("master", "[" * 100_000, "not a record of the kind 'master'"),
        (
            "framework",
            '{"framework_id":"f","name":"f","roles":["a"],"failover_timeout_s":1%s}' % ("0" * 400),
            "int too large",
        ),
        ("cat", "{}", "records of the kind 'cat' are not known to this release"),
    ],
)
def test_an_invalid_body_is_refused(kind: str, body: str | bytes, says: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode(kind, body)
    assert says in str(refused.value)
    assert isinstance(refused.value, NewerRecord) == (kind == "cat")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("agent", '{"agent_id": "A", "hostname": "h", "planet": 1}'),
        # A newer release may also leave out fields that this one requires.
        ("agent", '{"agent_id": "A", "planet": 1}'),
        ("role", '{"role": "ads", "settings": {"planet": 1}}'),
    ],
)
def test_a_field_of_a_newer_release_is_refused_by_name(kind: str, body: str) -> None:
    with pytest.raises(NewerRecord, match="'planet' is unknown"):
        decode(kind, body)
