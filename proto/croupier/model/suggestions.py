"""The known word that is nearest to an unknown one."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def unknown_word(kind: str, word: str, known: Collection[str]) -> str:
    """Return an error text: `unknown state 'runing': did you mean RUNNING? It is one of ...`.

    Case does not matter.
    """
    by_case = {each.lower(): each for each in known}
    near = get_close_matches(word.lower(), by_case, n=1, cutoff=0.6)
    listed = f"one of {', '.join(known)}"
    advice = f"did you mean {by_case[near[0]]}? It is {listed}" if near else listed
    return f"unknown {kind} {word[:80]!r}: {advice}"
