"""Fields are read by the rules of Mesos."""

import pytest

from croupier.mesos import fields
from croupier.model.errors import InvalidRequest


def test_null_and_other_kinds_are_unset() -> None:
    odd: fields.Json = {"a": None, "b": [], "c": {}}
    assert [fields.text(odd, name, "-") for name in "abcd"] == ["-"] * 4
    assert [fields.number(odd, name, 5) for name in "abcd"] == [5] * 4
    assert [fields.entry({"a": 1}, name) for name in "ab"] == [{}, {}]
    assert not fields.flag({"a": 1}, "a")


def test_a_value_where_a_list_is_wanted_is_a_list_of_one() -> None:
    assert fields.texts({"roles": "x"}, "roles") == ["x"]
    assert fields.entries({"tasks": {"a": 1}}, "tasks") == [{"a": 1}]
    assert fields.entries({"tasks": [{"a": 1}, 2, None]}, "tasks") == [{"a": 1}]


def test_numbers_are_accepted_for_texts() -> None:
    assert [fields.text({"a": each}, "a") for each in (1, 1.5, True)] == ["1", "1.5", "true"]


def test_infinity_and_texts_are_numbers() -> None:
    read = [fields.number({"a": each}, "a", 5.0) for each in ("Infinity", "2.5", "x", float("nan"))]
    assert read == [float("inf"), 2.5, 5.0, 5.0]
    assert fields.number({"a": 10**400}, "a") == float("inf")
    assert fields.integer({"a": 2**63 - 1}, "a") == 2**63 - 1
    assert fields.integer({"a": "Infinity"}, "a", 3) == 3


def test_an_agent_may_be_called_a_slave() -> None:
    assert fields.id_of({"slave_id": {"value": "a"}}, "agent_id") == "a"
    assert fields.id_of({"agent_id": {"value": "b"}, "slave_id": {"value": "a"}}, "agent_id") == "b"


def test_bytes_are_base64() -> None:
    assert fields.data_of({"data": fields.made_data(b"\0\xff")}, "data") == b"\0\xff"
    with pytest.raises(InvalidRequest):
        fields.data_of({"data": "?"}, "data")


@pytest.mark.parametrize(
    ("amount", "thousandths"), [(0.0005, 1), (1.0005, 1001), (0, 0), (-1, -1000)]
)
def test_scalars_are_rounded_to_thousandths(amount: float, thousandths: int) -> None:
    assert fields.milli(amount) == thousandths


@pytest.mark.parametrize("amount", [0.0004, float("inf"), float("nan"), 1e300])
def test_scalars_that_vanish_or_are_no_numbers_are_refused(amount: float) -> None:
    with pytest.raises(InvalidRequest):
        fields.milli(amount)


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        fields.parse_object(data)


def test_lone_surrogates_are_replaced() -> None:
    assert fields.text({"a": "\ud800"}, "a") == "?"
