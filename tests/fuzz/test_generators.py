"""Every message, method and record of the contracts is fuzzed, and a short run finds nothing."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from google.protobuf.descriptor import Descriptor
from google.protobuf.message_factory import GetMessageClass

from tests.fuzz.campaign import Campaign
from tests.fuzz.contract import Method, all_messages, all_methods
from tests.fuzz.messages import HARMLESS, Messages
from tests.fuzz.openers import OPENERS
from tests.fuzz.state_lines import StateLines
from tests.fuzz.values import Values, Words
from tests.fuzz.wire_bytes import damaged

RECORDS = 1_500


def source(seed: int) -> tuple[Messages, Values]:
    rng = random.Random(seed)
    values = Values(rng, Words())
    return Messages(rng, values), values


@pytest.mark.parametrize("kind", [*all_messages()], ids=lambda kind: kind.full_name)
def test_a_message_of_every_type_is_made_with_every_field(kind: Descriptor) -> None:
    messages, _ = source(1)
    made = set()
    # Each message has at most one member of a oneof, so a long oneof needs more of them.
    longest = max((len(oneof.fields) for oneof in kind.oneofs), default=1)
    for _ in range(max(60, 12 * longest)):
        message = messages.message(kind)
        made |= {field.name for field, _ in message.ListFields()}
        GetMessageClass(kind).FromString(message.SerializeToString())
    expected = {field.name for field in kind.fields}
    assert made == expected or kind.full_name in HARMLESS, expected - made


def test_streams_have_legal_beginnings() -> None:
    streams = {method.path: method for method in all_methods() if method.is_stream}
    assert streams.keys() == OPENERS.keys()
    messages, values = source(2)
    for path, opener in OPENERS.items():
        for request in opener(messages, values):
            assert request.DESCRIPTOR is streams[path].request


@pytest.mark.parametrize("method", all_methods(), ids=lambda method: method.path)
def test_requests_follow_from_the_seed(method: Method) -> None:
    def requests() -> list[bytes]:
        messages, values = source(3)
        made = (messages.message(method.request) for _ in range(20))
        return [damaged(each.SerializeToString(deterministic=True), values.rng) for each in made]

    assert requests() == requests()


def test_decoders_of_state_refuse_or_accept() -> None:
    """`StateLines` covers all durable formats, and raises what no decoder may raise."""
    _, values = source(4)
    lines, count = StateLines(values.rng, values), 0
    while count < RECORDS:
        count += lines.run()


SEED, SECONDS = 12, 3.0
# Another process may have the processor: `make fuzz` judges steps and latencies.
LONGEST_STEP_S = 0.5


@pytest.mark.e2e
async def test_a_short_run_finds_nothing(tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, SEED, SECONDS, longest_step_s=LONGEST_STEP_S)
    report = await campaign.run(judges_latency=False)
    assert [str(finding) for finding in report.findings] == []
    # Each attack has sent something, and the honest framework has worked meanwhile.
    assert {method.path for method in all_methods()} <= report.sent.keys()
    assert all(report.sent.values())
    assert report.tasks > 0
