"""Lines of the event log: omitted commands and refused lines."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from croupier.master.core import calls
from croupier.master.core.effects import Save, SessionId
from croupier.master.core.events import FrameworkCalled
from croupier.master.core.records import TaskRecord
from croupier.master.eventlog.codec import NAMES, event_encoder, read_line, write_event, write_line
from croupier.master.eventlog.digest import Digest
from croupier.master.eventlog.lines import LogEntry
from croupier.model.codec import Codec, Undecodable
from croupier.model.ids import AgentId, FrameworkId, OfferId, Role, TaskId
from croupier.model.resources import Resources
from croupier.model.secrets import MAX_SECRET_BYTES, WITHHELD, SealedValue
from croupier.model.task import Command, TaskInfo
from croupier.model.task_checks import MAX_COMMAND_BYTES, MAX_ENVIRONMENT_BYTES, check_command
from tests.harness.effort import portion
from tests.harness.recorded import make_head, sealed

SECRET = Command(("run", "--token=hunter2"), environment={"TOKEN": "hunter2"})


def accept(command: Command) -> FrameworkCalled:
    task = TaskInfo(TaskId("t"), command, Resources.parse("cpus:1"))
    return FrameworkCalled(SessionId(1), 1, calls.Accept((OfferId("o"),), (task,)))


def written(event: FrameworkCalled) -> bytes:
    return write_event({"at": 0.0, "event": event_encoder()(event)})


def read(event: FrameworkCalled) -> Command:
    entry = read_line(written(event))
    assert isinstance(entry, LogEntry)
    assert isinstance(entry.event, FrameworkCalled)
    assert isinstance(entry.event.call, calls.Accept)
    return entry.event.call.tasks[0].command


def test_legal_commands_are_not_written() -> None:
    assert b"hunter2" not in written(accept(SECRET))
    check_command(read(accept(SECRET)))


def test_an_illegal_command_is_written_in_full() -> None:
    broken = Command((), shell="", user="u")
    assert read(accept(broken)) == broken


@pytest.mark.parametrize(
    "command",
    [
        Command(("a",)),
        Command(("run", "", "\u00e9"), user="u"),
        Command(shell="x" * MAX_COMMAND_BYTES),
        Command(shell="x" * (MAX_COMMAND_BYTES - 100), user="\u00e9" * 50),
        Command(shell="x", environment={"A": "y" * (MAX_ENVIRONMENT_BYTES - 1)}),
        Command(
            shell="x" * MAX_COMMAND_BYTES, environment={"A": "y" * (MAX_ENVIRONMENT_BYTES - 1)}
        ),
    ],
)
def test_a_command_is_read_as_a_legal_command_of_the_same_size(command: Command) -> None:
    back = read(accept(command))
    check_command(back)
    assert (back.size, back.user) == (command.size, command.user), "decisions depend on both"


SEALED = {"A": SealedValue("k", "x" * 100), "B": SealedValue("k", "y" * MAX_SECRET_BYTES)}


@pytest.mark.parametrize(
    "command",
    [
        Command(("a",), secrets=SEALED),
        Command(("a",), secrets={"A": WITHHELD}, user="u"),
        Command(
            shell="x" * MAX_COMMAND_BYTES,
            environment={"E": "y" * (MAX_ENVIRONMENT_BYTES - 1)},
            secrets=SEALED,
        ),
    ],
)
def test_of_secrets_only_the_names_are_written(command: Command) -> None:
    assert b"xxx" not in written(accept(command))
    back = read(accept(command))
    check_command(back)
    assert (back.size, list(back.secrets)) == (command.size, list(command.secrets))
    assert back.user == command.user


@pytest.mark.parametrize("listed", [b"[]", b'["A"]', b"[5,1]", b'[1,"A"]', b'[9,"A-"]'])
def test_impossible_names_of_secrets_are_refused(listed: bytes) -> None:
    text = written(accept(SECRET)).replace(b'"command":%d' % SECRET.size, b'"command":' + listed)
    with pytest.raises(Undecodable, match=r"not|character"):
        read_line(sealed(text))


@pytest.mark.parametrize(
    "size", [b"0", b"-1", b"true", b"1.0", b"%d" % (MAX_COMMAND_BYTES + MAX_ENVIRONMENT_BYTES + 1)]
)
def test_an_impossible_size_of_a_command_is_refused(size: bytes) -> None:
    text = written(accept(SECRET)).replace(b'"command":%d' % SECRET.size, b'"command":' + size)
    with pytest.raises(Undecodable, match="not "):
        read_line(sealed(text))


def test_a_digest_does_not_depend_on_the_size_of_a_command() -> None:
    def digest(length: int) -> str:
        task = TaskInfo(TaskId("t"), Command(shell="x" * length), Resources.parse("cpus:1"))
        record = TaskRecord(FrameworkId("f"), task, AgentId("a"), Role("r"))
        return Digest().add([Save(record)])

    assert digest(1) == digest(9) != digest(0)


def known_agent(total: str) -> bytes:
    agent = '"agent_id": "a", "hostname": "h", "attributes": {}'
    return f'{{"agent": {{{agent}, "total": {total}}}}}'.encode()


def known_framework(constraint: str) -> bytes:
    demand = f'{{"unit": {{"cpus": 1}}, "constraints": [{constraint}]}}'
    framework = '"framework_id": "f", "name": "n", "roles": [], "session": 1'
    return f'{{"framework": {{{framework}, "demands": [{demand}]}}}}'.encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "not a line of JSON"),
        (b"{", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"\xff\xfe", "not a line of JSON"),
        (b"9" * 5000, "not a line of JSON"),
        (b'{"at": NaN, "event": {}}', "not a line of JSON"),
        (b"[]", "not an object"),
        (b"{}", "its checksum is missing"),
        (b'{"head": {}}', "format None"),
        (b'{"head": {"format": 0}}', "format 0; there is no such format"),
        (b'{"head": {"format": 1}}', "format 1; there is no such format"),
        (b'{"head": {"format": 2}}', "its checksum is missing"),
        (b'{"head": {"format": 3}}', "format 3; this program reads formats up to 2: use the newer"),
        (b'{"head": {"format": 2,"crc":"00000000"}}', "its checksum does not match"),
    ],
)
def test_a_line_of_another_format_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        read_line(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b'{"x": {}}', "neither a head"),
        (b'{"event": {}}', "nothing else"),
        (b'{"at": 1, "event": {}, "x": 1}', "nothing else"),
        (b'{"at": "1", "event": {"kind": "TimePassed"}}', "a str is not a float"),
        (b'{"at": 1e999, "event": {"kind": "TimePassed"}}', "without a time"),
        (b'{"at": 1' + b"0" * 400 + b', "event": {"kind": "TimePassed"}}', "too large"),
        (b'{"at": 1, "event": {"kind": "Read"}}', "unknown kind 'Read'"),
        (b'{"at": 1, "event": {"kind": "os.system"}}', "unknown kind"),
        (b'{"at": 1, "event": {"kind": ["Heard"]}}', "unknown kind"),
        (b'{"at": 1, "event": {"kind": "Heard"}}', "'session' is missing"),
        (b'{"at": 1, "event": {"kind": "Heard", "session": true}}', "a bool is not a int"),
        (b'{"at": 1, "event": {"kind": "Heard", "session": 1, "x": 1}}', "'x' is unknown"),
        (b'{"agent": {"agent_id": "a", "hostname": "h", "total": {"cpus": -1}}}', "'attributes'"),
        (known_agent('{"cpus": -1}'), "negative"),
        (known_agent('{"cpus": true}'), "not an amount"),
        (known_agent('{"cpus": 1.5}'), "not an amount"),
        (known_agent('{"ports": [[5, 1]]}'), "not a range"),
        (known_agent('{"ports": [5, 1]}'), "not a range"),
        (known_agent('{"x": {"set": [1]}}'), "not an amount"),
        (known_framework('{"attribute": "a", "operator": "MATCHES", "value": "("}'), "cannot be"),
        (known_framework('{"attribute": "a", "operator": "__class__"}'), "not a Operator"),
    ],
)  # fmt: skip
def test_an_invalid_line_is_refused(text: bytes, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        read_line(sealed(text))


def test_a_document_cannot_choose_its_type() -> None:
    decode = Codec(NAMES).decoder(calls.Accept)
    with pytest.raises(Undecodable):
        decode({"kind": "Teardown"})
    with pytest.raises(Undecodable):
        decode({"__class__": "x", "offer_ids": [], "tasks": []})
    assert decode({"offer_ids": [], "tasks": []}) == calls.Accept((), ())


def test_lone_surrogates_round_trip() -> None:
    event = accept(SECRET)
    odd = FrameworkCalled(event.session, 1, calls.Decline((OfferId("\ud800"),), None, "\0"))
    entry = read_line(written(odd))
    assert isinstance(entry, LogEntry)
    assert entry.event == odd
    assert json.loads(written(odd))["at"] == 0


@settings(max_examples=portion(200), deadline=None)
@given(st.data())
def test_a_damaged_line_is_refused(data: st.DataObject) -> None:
    head = write_line(make_head())
    entry = {"at": 1.5, "event": event_encoder()(accept(SECRET)), "decided": "0123456789abcdef"}
    text = data.draw(st.sampled_from([head, write_event(entry)]))
    place = data.draw(st.integers(0, len(text) - 2))
    byte = data.draw(st.integers(0, 255).filter(lambda each: each != text[place]))
    read_line(text)
    with pytest.raises(Undecodable):
        read_line(text[:place] + bytes([byte]) + text[place + 1 :])
    with pytest.raises(Undecodable):
        read_line(text[:place])
