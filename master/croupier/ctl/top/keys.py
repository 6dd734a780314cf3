"""The keys of `croupier top`. Pure."""

from __future__ import annotations

from dataclasses import replace

from croupier.ctl.top.frame import Wish

MAX_FILTER = 60
_ENTER = "\r\n"
_ESCAPE = "\x1b"
_RUBOUT = "\x7f\b"


def pressed(wish: Wish, text: str) -> Wish | None:
    """Return the wish after the keys of `text`; None: quit. Keys that mean nothing are ignored."""
    if text.startswith(_ESCAPE) and len(text) > 1:
        # A key such as an arrow.
        return wish
    for key in text:
        if wish.is_typing:
            wish = _typed(wish, key)
        elif key in "qQ\x03\x04":
            return None
        elif key in "sS":
            wish = replace(wish, order=wish.order.next)
        elif key == "/":
            wish = replace(wish, is_typing=True)
        elif key == _ESCAPE:
            wish = replace(wish, filter="")
    return wish


def _typed(wish: Wish, key: str) -> Wish:
    if key in _ENTER:
        return replace(wish, is_typing=False)
    if key == _ESCAPE:
        return replace(wish, is_typing=False, filter="")
    if key in _RUBOUT:
        return replace(wish, filter=wish.filter[:-1])
    if key.isprintable() and len(wish.filter) < MAX_FILTER:
        return replace(wish, filter=wish.filter + key)
    return wish
