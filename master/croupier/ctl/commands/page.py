"""`croupier page`."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from croupier.cli.flags import LOCAL, MasterFlag
from croupier.ctl.app import app


@app.command(name="page")
def page(
    *,
    show_token: Annotated[bool, Parameter(negative="")] = False,
    browser: Annotated[bool, Parameter(name="--open", negative="")] = False,
    master: MasterFlag = LOCAL,
) -> None:
    """Print the address of the web page, and how to sign in to it.

    The page is served by the master that leads. A browser warns if it does not know the authority
    of the master's certificate: the command prints what to import, or what to compare.

    Parameters
    ----------
    show_token
        Print nothing but the token that this command line uses, such as for a clipboard:
        croupier page --show-token | xclip. The page asks for it.
    browser
        Open the page in a browser. The token is not passed to it.
    """
    from croupier.ctl.page import open_page, print_token

    if show_token:
        print_token(master)
    else:
        open_page(master, in_browser=browser)
