"""The keys of `croupier top`. Pure."""

from __future__ import annotations

from dataclasses import replace

from croupier.ctl.top.frame import Display

MAX_FILTER = 60
_ENTER = "\r\n"
_ESCAPE = "\x1b"
_RUBOUT = "\x7f\b"


def pressed(display: Display, text: str) -> Display | None:
    """Return the display after the keys of `text`; None: quit. Other keys are ignored."""
    if text.startswith(_ESCAPE) and len(text) > 1:
        # A key such as an arrow.
        return display
    for key in text:
        if display.is_typing:
            display = _typed(display, key)
        elif key in "qQ\x03\x04":
            return None
        elif key in "sS":
            display = replace(display, order=display.order.next)
        elif key == "/":
            display = replace(display, is_typing=True)
        elif key == _ESCAPE:
            display = replace(display, filter="")
    return display


def _typed(display: Display, key: str) -> Display:
    if key in _ENTER:
        return replace(display, is_typing=False)
    if key == _ESCAPE:
        return replace(display, is_typing=False, filter="")
    if key in _RUBOUT:
        return replace(display, filter=display.filter[:-1])
    if key.isprintable() and len(display.filter) < MAX_FILTER:
        return replace(display, filter=display.filter + key)
    return display
