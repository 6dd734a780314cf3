"""`croupier masters`."""

from __future__ import annotations

from croupier.cli.flags import LOCAL, JsonListFlag, MasterFlag, WideFlag
from croupier.ctl.app import app


@app.command
def masters(
    *,
    master: MasterFlag = LOCAL,
    as_json: JsonListFlag = False,
    wide: WideFlag = False,
) -> None:
    """List the running masters: which one leads, its term, and the URL of each one's page.

    Masters of releases that do not tell of themselves are listed only while they lead.
    """
    from croupier.ctl.masters import print_masters

    print_masters(master, as_json=as_json, wide=wide)
