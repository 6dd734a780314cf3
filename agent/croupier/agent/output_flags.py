"""Flags of an agent for the output of tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

from croupier.model.errors import InvalidRequest
from croupier.model.output_bound import OutputBound, format_output_size, parse_output_size
from croupier.process.cli import read_by


@Parameter(name="*")
@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFlags:
    """The bound of the output of tasks that name none.

    Raises:
        InvalidRequest: if a value is out of range.
    """

    output_size: Annotated[int, read_by(parse_output_size, show_default=format_output_size)] = (
        128 * 1024**2
    )
    """Size of one output file. The oldest --output-size bytes of stdout or stderr of a task are
    removed once it has written --output-files times as much; 0 keeps everything."""

    output_files: int = 8
    """The number of output files that are kept of stdout, and of stderr, of a task."""

    @property
    def bound(self) -> OutputBound:
        """The bound of both streams."""
        return OutputBound(self.output_size, self.output_files)

    def __post_init__(self) -> None:
        if self.output_files <= 0:
            raise InvalidRequest("--output-files must be at least 2")
        try:
            self.bound.check()
        except InvalidRequest as error:
            raise InvalidRequest(f"--output-size, --output-files: {error}") from None
