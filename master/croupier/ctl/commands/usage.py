"""`croupier usage`: who used how much of the cluster in a time, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import json
import re
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from croupier.api.forms import USAGE_BY
from croupier.api.objects import as_object
from croupier.cli.flags import LOCAL, MasterFlag, WideFlag
from croupier.cli.table import print_table
from croupier.cli.terminal import print_lines
from croupier.ctl.app import app
from croupier.ctl.operation import ask
from croupier.ctl.views.usage import csv_rows, headline, usage_table
from croupier.model.durations import parse_duration
from croupier.model.errors import InvalidRequest
from croupier.v1 import operator_pb2 as pb

By = Literal["role", "framework", "principal", "label"]
_MONTH: Final = re.compile(r"[0-9]{4}-(0[1-9]|1[0-2])")


@app.command
def usage(
    *,
    by: By = "role",
    month: str = "",
    since: Annotated[str, Parameter(name="--from")] = "",
    until: Annotated[str, Parameter(name="--to")] = "",
    master: MasterFlag = LOCAL,
    as_csv: Annotated[bool, Parameter(name="--csv", negative="")] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    wide: WideFlag = False,
) -> None:
    """Show who used how much of the cluster in a time: this month, if none is given.

    SHARE is the mean dominant share: the largest part of any resource of the cluster that its tasks
    used. SHARE-H is the same in hours of the whole cluster. Columns such as CPUS-H are resources
    times hours, as the tasks asked for them; those of HELD were kept idle by holds, those of
    OFFERED waited for an answer. Of the tasks that have ended and that their agents measured, ASKED
    is what they asked for, MEASURED what they used of it, and WASTED the rest, also in percent of
    ASKED. The master keeps the hours of the last two days, and days (UTC) for 400 days; those that
    have a part in the time count as a whole.

    Args:
        by: What to sum by: role, with all roles below it; framework, by name; principal, the owner
            of the frameworks; or label, the value of the label `cost-center` of tasks.
        month: The month to report, such as 2026-11 (UTC).
        since: Start of the time: a date such as 2026-11-01, a time such as 2026-11-01T06:00 (UTC),
            or how long ago, such as 12h or 7d.
        until: End of the time, in the same forms. Default: now.
        as_csv: Print CSV, with the titles in the first line.
        as_json: Print a JSON object.
    """
    if as_csv and as_json:
        raise InvalidRequest("--csv and --json exclude each other")
    if month and (since or until):
        raise InvalidRequest("--month and --from or --to exclude each other")
    now = datetime.now(UTC)
    month = month or ("" if since or until else f"{now:%Y-%m}")
    if month:
        begin, end = month_of(month)
    else:
        begin, end = moment(since, now), moment(until, now)
    request = pb.GetUsageRequest(by=USAGE_BY[by], since_ms=begin, until_ms=end)
    view = as_object(ask(master, "GetUsage", request))
    if as_json:
        print(json.dumps(view, indent=2))
    elif as_csv:
        csv.writer(sys.stdout, lineterminator="\n").writerows(csv_rows(view, by))
    else:
        print_lines(headline(view))
        print_table(usage_table(view, by), view["usage"], sys.stdout, wide=wide)


def month_of(text: str) -> tuple[int, int]:
    """Return start and end of a month (UTC); raises InvalidRequest if it is none."""
    try:
        if not _MONTH.fullmatch(text):
            raise ValueError
        begin = datetime.fromisoformat(f"{text}-01").replace(tzinfo=UTC)
        end = (begin + timedelta(days=32)).replace(day=1)
    except (ValueError, OverflowError):
        # There is no year 0, and no end of December 9999.
        raise InvalidRequest(f"--month: {text[:80]!r} is not a month (example: 2026-11)") from None
    return _milliseconds(begin), _milliseconds(end)


def moment(text: str, now: datetime) -> int:
    """Return a time in milliseconds since the epoch; 0 without text.

    Raises InvalidRequest if it is neither a date, nor a time, nor a duration.
    """
    if not text:
        return 0
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            found = now - timedelta(seconds=parse_duration(text))
        except (InvalidRequest, OverflowError):
            raise InvalidRequest(
                f"{text[:80]!r} is no time (examples: 2026-11-01, 2026-11-01T06:00, 7d)"
            ) from None
    return _milliseconds(found if found.tzinfo else found.replace(tzinfo=UTC))


def _milliseconds(time: datetime) -> int:
    return max(0, round(time.timestamp() * 1000))
