"""Token files are private, and errors do not show their contents."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from croupier.model.errors import InvalidRequest
from croupier.net.credentials import create_token_file, make_token, read_token_file


def test_a_token_file_is_private_and_read_back(tmp_path: Path) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_token_file(path) == token


def test_tokens_differ() -> None:
    assert len({make_token().text for _ in range(100)}) == 100


def test_a_token_file_is_never_overwritten(tmp_path: Path) -> None:
    token, path = make_token(), tmp_path / "token"
    create_token_file(path, token)
    with pytest.raises(FileExistsError):
        create_token_file(path, make_token())
    assert read_token_file(path) == token


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
def test_a_file_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    create_token_file(path, make_token())
    path.chmod(mode)
    with pytest.raises(InvalidRequest, match="chmod 600"):
        read_token_file(path)


def test_a_fifo_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "token"
    os.mkfifo(path, 0o600)
    with pytest.raises(InvalidRequest, match="not a file"):
        read_token_file(path)


def test_errors_name_the_file_and_not_its_contents(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(InvalidRequest, match=str(path)):
        read_token_file(path)
    path.touch(0o600)
    path.write_text("hunter2")
    with pytest.raises(InvalidRequest, match=str(path)) as caught:
        read_token_file(path)
    assert "hunter2" not in str(caught.value)
