"""The agent's id comes from its certificate, or from the token that it has made."""

from __future__ import annotations

from pathlib import Path

import pytest

from croupier.agent.core.events import AgentStarted, Now, Removed
from croupier.agent.core.records import AgentRecord
from croupier.agent.core.recovery import identify, recovered
from croupier.agent.core.state import AgentState
from croupier.agent.core.step import step
from croupier.agent.credential import OwnTokenFile, agent_id_in, remove_own_token
from croupier.model.access import KeyId
from croupier.model.errors import Conflict, InvalidRequest
from croupier.model.ids import AgentId
from croupier.model.resources import Resources
from croupier.net.certificate import Certificate

TOTAL = Resources.parse("cpus:1;mem:1GB")
A1, A2, NONE = AgentId("a1"), AgentId("a2"), AgentId("")


def state_of(agent_id: AgentId) -> AgentState:
    return recovered([AgentRecord(agent_id, "", 0)] if agent_id else [], TOTAL, life="x")


def started(state: AgentState) -> AgentState:
    step(state, AgentStarted(), Now(0.0, 0))
    return state


def test_a_new_agent_takes_the_id_in_its_certificate_and_never_another() -> None:
    state = state_of(NONE)
    identify(state, A1, is_certified=True)
    # An earlier agent may have had the id, and its tasks.
    assert state.incomplete
    assert started(state).agent_id == A1
    step(state, Removed(), Now(1.0, 0))
    assert state.agent_id == A1


def test_a_new_agent_takes_the_id_of_its_token_until_it_is_removed() -> None:
    state = state_of(NONE)
    identify(state, A1, is_certified=False)
    assert state.incomplete
    assert started(state).agent_id == A1
    step(state, Removed(), Now(1.0, 0))
    assert state.agent_id not in (A1, NONE)


@pytest.mark.parametrize("is_certified", [True, False])
def test_a_known_agent_keeps_its_id(is_certified: bool) -> None:
    state = state_of(A1)
    identify(state, A1, is_certified=is_certified)
    assert not state.incomplete
    assert started(state).agent_id == A1


def test_the_certificate_of_another_agent_is_refused() -> None:
    with pytest.raises(Conflict, match=r"of agent a2.*of agent a1.*--recover=cleanup"):
        identify(state_of(A1), A2, is_certified=True)
    # A token of an earlier id is replaced when the agent joins.
    state = state_of(A1)
    identify(state, A2, is_certified=False)
    assert started(state).agent_id == A1


@pytest.mark.parametrize(
    ("uris", "expected"),
    [
        ((), NONE),
        (("spiffe://other/x",), NONE),
        (("croupier://c/agent/a1",), A1),
        (("croupier://c/agent/a%3A1",), AgentId("a:1")),
        # No principal has a slash in its name.
        (("croupier://c/agent/a%2Fb",), NONE),
    ],
)
def test_the_id_in_a_certificate(uris: tuple[str, ...], expected: AgentId) -> None:
    assert agent_id_in(Certificate("", "", uris, (), 0, 0, KeyId("")), Path("cert.pem")) == expected


@pytest.mark.parametrize(
    "uri", ["croupier://c/master/m1", "croupier://c/client/a1", "croupier://c/agent/..",
            "croupier://c/agent/"],
)  # fmt: skip
def test_a_certificate_of_anything_else_is_refused(uri: str) -> None:
    with pytest.raises(InvalidRequest):
        agent_id_in(Certificate("", "", (uri,), (), 0, 0, KeyId("")), Path("cert.pem"))


def test_the_token_is_on_disk_for_one_id(tmp_path: Path) -> None:
    file = OwnTokenFile(tmp_path)
    assert file.current is None
    own = file.bind(A1)
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert OwnTokenFile(tmp_path).current == own == file.bind(A1)
    file.mark(is_joined=True)
    again = OwnTokenFile(tmp_path)
    assert again.current is not None
    assert (again.current.token, again.current.is_joined) == (own.token, True)
    assert own.token.secret not in repr(again.current)
    # Another id gets another token.
    assert again.bind(A2).token != own.token
    assert not again.bind(A2).is_joined
    remove_own_token(tmp_path)
    assert OwnTokenFile(tmp_path).current is None


@pytest.mark.parametrize("damage", ["other users", "empty", "no id", "a link"])
def test_a_token_file_that_cannot_be_trusted_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "token"
    text = OwnTokenFile(tmp_path).bind(A1).token.text
    if damage == "other users":
        path.chmod(0o644)
    elif damage == "empty":
        path.write_text("")
    elif damage == "no id":
        path.write_text(text + "\n")
    else:
        path.unlink()
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidRequest) as refused:
        OwnTokenFile(tmp_path)
    assert text not in str(refused.value)
