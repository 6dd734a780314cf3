"""Records as rows: every kind round-trips, and contradictions are refused before a term begins."""

from __future__ import annotations

from typing import get_args

import pytest

from croupier.master.allocator import Allocator, Rules, policies
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
    QueuePlace,
    Record,
    RoleRecord,
    TaskRecord,
)
from croupier.master.core.registry import Registry
from croupier.master.core.settings import Settings
from croupier.master.core.state_recovery import recover_state
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
from croupier.model.demand import Placement
from croupier.model.errors import InvalidRequest
from croupier.model.ids import AgentId, FrameworkId, Role, TaskId
from croupier.model.principal import PrincipalName
from croupier.model.resources import Resources
from croupier.model.roles import RoleSettings
from croupier.model.task import Command, TaskInfo
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
        ("usage", pb.UsageRecord(start_ms=1).SerializeToString(), "by whole hours and days"),
        (
            "usage",
            pb.UsageRecord(length_ms=3_600_000, used={"cpus": "-1"}).SerializeToString(),
            "usage is not below 0",
        ),
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


# Records that are intact and contradict each other are refused before a term begins.


def recover(registry: Registry) -> None:
    recover_state(registry, "m1", Settings(), Allocator(policies.make("drf", 0), Rules(), {}), 0.0)


def test_a_framework_in_a_role_twice() -> None:
    registry = Registry()
    registry.apply(FrameworkRecord(FrameworkId("f"), "f", (Role("a"), Role("a")), 60.0))
    with pytest.raises(InvalidRequest, match="framework 'f' is in a role twice"):
        recover(registry)


def test_a_task_queued_in_a_role_that_its_framework_lacks() -> None:
    registry = Registry()
    registry.apply(FrameworkRecord(FrameworkId("f"), "f", (Role("a"),), 60.0))
    info = TaskInfo(TaskId("t"), Command(shell="true"), Resources.parse("cpus:1"))
    place = QueuePlace(Placement(), 1, 0)
    registry.apply(TaskRecord(FrameworkId("f"), info, AgentId(""), Role("b"), queued=place))
    with pytest.raises(InvalidRequest, match="task 't' of framework 'f' is queued in role 'b'"):
        recover(registry)


def test_two_tokens_of_one_agent() -> None:
    registry = Registry()
    for number in range(2):
        registry.apply(
            TokenRecord(
                TokenId(f"{number:08x}"),
                TokenKind.AGENT,
                PrincipalName("agent/a"),
                "0" * 64,
                created_ms=0,
            )
        )
    with pytest.raises(InvalidRequest, match="two tokens are bound to one agent"):
        recover(registry)
