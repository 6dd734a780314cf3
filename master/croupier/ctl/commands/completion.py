"""`croupier completion`."""

from __future__ import annotations

from typing import Literal

from croupier.ctl.app import app


@app.command
def completion(shell: Literal["bash", "zsh", "fish"], /) -> None:
    """Print a script that completes commands, flags, and ids of agents, frameworks and tasks.

    bash: croupier completion bash > ~/.local/share/bash-completion/completions/croupier

    zsh: croupier completion zsh > DIRECTORY/_croupier, where DIRECTORY is in fpath

    fish: croupier completion fish > ~/.config/fish/completions/croupier.fish

    Make it again after an upgrade. Ids are those of the masters of --master or CROUPIER_MASTER.

    Parameters
    ----------
    shell
        The shell that reads the script.
    """
    from croupier.ctl.completion.scripts import script
    from croupier.ctl.completion.words import table

    print(script(shell, table(app)), end="")
