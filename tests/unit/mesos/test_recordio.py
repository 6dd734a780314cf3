"""Records are read and written, however a stream is cut."""

import pytest

from croupier.mesos.fields import record, typed
from croupier.model.errors import InvalidRequest
from tests.harness.recordio import Records


def test_a_record_is_compact_json_after_its_length() -> None:
    assert record(typed("HEARTBEAT")) == b'20\n{"type":"HEARTBEAT"}'


@pytest.mark.parametrize("step", [1, 2, 3, 7, 100])
def test_records_are_read_however_the_stream_is_cut(step: int) -> None:
    data = record({"a": "one"}) + b"0\n" + record({"a": "t\nwo"})
    records = Records(100)
    found: list[bytes] = []
    for start in range(0, len(data), step):
        found += records.read(data[start : start + step])
    assert found == [b'{"a":"one"}', b"", b'{"a":"t\\nwo"}']


@pytest.mark.parametrize("data", [b"x\n", b"\n1", b"-1\n", b" 1\n", b"12345678901", b"101\n"])
def test_a_wrong_length_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        list(Records(100).read(data))
