"""`--secret` of `croupier run`: values from files, from the environment or from the flag itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from croupier.model.errors import InvalidRequest
from croupier.model.secrets import MAX_SECRET_BYTES, SecretValues


def read_secrets(flags: Iterable[str], environment: Mapping[str, str]) -> SecretValues:
    """Read `NAME=@FILE`, `NAME` and `NAME=VALUE`. The last value of a name counts.

    Errors quote no values.

    Raises:
        InvalidRequest: if a flag is malformed, or a value cannot be read.
    """
    values: dict[str, str] = {}
    for flag in flags:
        name, equals, value = flag.partition("=")
        if not equals and name not in environment:
            raise InvalidRequest(
                "--secret NAME takes the value of a variable, but there is none of that name; give"
                " --secret NAME=@FILE to read a file"
            )
        if not equals:
            value = environment[name]
        elif value.startswith("@"):
            value = _content(Path(value[1:]))
        values[name] = value
    secrets = SecretValues(values)
    secrets.check()
    return secrets


def _content(path: Path) -> str:
    """Return the text of a file without one line end."""
    try:
        with path.expanduser().open("rb") as file:
            content = file.read(MAX_SECRET_BYTES + 2)
        return content.decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InvalidRequest(f"--secret: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"--secret: {path} is not text in UTF-8") from None
