"""`croupier masters`."""

from __future__ import annotations

from typing import Final

from croupier.api.objects import as_object
from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag, WideFlag
from croupier.cli.table import Column, Table, age, text
from croupier.cli.terminal import View
from croupier.ctl.app import app
from croupier.ctl.lists import age_s, with_age
from croupier.ctl.operation import ask, print_objects
from croupier.v1 import operator_pb2 as pb

MASTERS: Final = Table(
    (
        text("MASTER", "address", is_id=True),
        Column("ROLE", lambda view: "leads" if view["leader"] else "follows"),
        # That of a follower is over.
        Column("TERM", lambda view: str(view["epoch"]) if view["leader"] else "", is_number=True),
        age("TERM AGE", "term_age_s", 3),
        age("UP", "age_s", 2),
        Column("VERSION", lambda view: view["version"] or "", rank=1),
        Column("PAGE", lambda view: view["http_address"] or "", rank=4),
    ),
    "no masters",
)


@app.command
def masters(
    *, master: MasterFlag = LOCAL, as_json: JsonListFlag = False, wide: WideFlag = False
) -> None:
    """List the running masters: which one leads, its term, and the URL of each one's page.

    Masters of old releases, which do not announce themselves, are listed only while they lead.
    """
    answer = ask(master, "ListMasters", pb.ListMastersRequest())
    views: list[View] = [as_object(each) for each in answer.masters]
    if not as_json:
        views = [_aged(view, answer.now_ms) for view in views]
    print_objects(MASTERS, views, as_json=as_json, wide=wide)


def _aged(view: View, now_ms: int) -> View:
    """Return a master with its ages in seconds; that of the term only while it lasts."""
    term_ms = view["term_since_ms"] if view["leader"] else None
    return {**with_age(view, now_ms), "term_age_s": age_s(term_ms, now_ms)}
