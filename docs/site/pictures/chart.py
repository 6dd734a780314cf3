"""Charts as SVG: small, without fonts or scripts, the same bytes for the same curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

# Colours that people with colour blindness can tell apart (Okabe and Ito).
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3")
_WIDTH, _HEIGHT = 720, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 120, 34, 40


@dataclass(frozen=True, slots=True)
class Curve:
    """A line of a chart: points of (time, percent), in order of time."""

    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Chart:
    """Curves over time, with a title and notes at moments; an axis with a number at each `tick`."""

    title: str
    what: str
    curves: Sequence[Curve]
    notes: Sequence[tuple[float, str]] = ()
    unit: str = "minutes"
    tick: int = 1

    def svg(self) -> str:
        """Return the file."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        end = max(at for curve in self.curves for at, _ in curve.points)
        x_scale = (_WIDTH - _LEFT - _RIGHT) / end
        floor = _HEIGHT - _BOTTOM

        def x(at: float) -> str:
            return f"{_LEFT + at * x_scale:.1f}"

        def y(percent: float) -> str:
            return f"{floor - percent * (floor - _TOP) / 100:.1f}"

        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img"'
            f' aria-label="{self.title}" font-family="sans-serif" font-size="12">'
        )
        yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#fff"/>'
        yield f'<text x="{_LEFT}" y="18" font-size="14" font-weight="bold">{self.title}</text>'
        for percent in range(0, 101, 25):
            at = y(percent)
            yield f'<path d="M{_LEFT} {at}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
            yield f'<text x="{_LEFT - 8}" y="{at}" dy="4" text-anchor="end">{percent} %</text>'
        for time in range(0, int(end) + 1, self.tick):
            yield f'<text x="{x(time)}" y="{floor + 16}" text-anchor="middle">{time}</text>'
        middle = (_LEFT + _WIDTH - _RIGHT) // 2
        axis = f'x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle"'
        yield f"<text {axis}>{self.unit}; {self.what}</text>"
        for moment, text in self.notes:
            yield f'<path d="M{x(moment)} {_TOP}V{floor}" stroke="#888" stroke-dasharray="2 3"/>'
            yield f'<text x="{x(moment)}" y="{_TOP + 10}" dx="4" fill="#555">{text}</text>'
        for curve, colour, dash in zip(self.curves, COLOURS, _DASHES, strict=False):
            path = "L".join(f"{x(at)} {y(percent)}" for at, percent in curve.points)
            style = f' stroke-dasharray="{dash}"' if dash else ""
            yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5"{style}/>'
        yield from self._labels(y)
        yield "</svg>"

    def _labels(self, y: object) -> Iterator[str]:
        assert callable(y)
        step = 18
        for number, (curve, colour) in enumerate(zip(self.curves, COLOURS, strict=False)):
            at = _TOP + 8 + number * step
            left = _WIDTH - _RIGHT + 12
            dash = f' stroke-dasharray="{_DASHES[number]}"' if _DASHES[number] else ""
            yield f'<path d="M{left} {at - 4}h18" stroke="{colour}" stroke-width="2.5"{dash}/>'
            yield f'<text x="{left + 24}" y="{at}">{curve.label}</text>'
