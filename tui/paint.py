"""Text in colours by name: what every widget here draws with.

A `Span` is plain text and the name of its ink. Inks are component classes, so that `app.tcss` alone says what they look
like in a theme. Nothing here reads markup, and text from outside has its control characters made visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar, Literal

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from hyp_submit.report import printable

Ink = str
"""The name of an ink, or of several with spaces between."""
Span = tuple[str, Ink]

INKS = (
    *("free", "busy", "claimed", "leaving", "broken", "absent", "unknown"),
    *(
        "plain",
        "strong",
        "faint",
        "title",
        "picked",
        "chosen",
        "cursor",
        "cell",
        "marked",
        "alert",
        "live",
        "snapshot",
        "demo",
    ),
)


_BETWEEN = "   "


class Pen:
    """Makes outside text fit for the screen; in ASCII where the terminal has nothing else."""

    def __init__(self, *, ascii_only: bool = False) -> None:
        self.ascii_only = ascii_only
        self.ellipsis = ">" if ascii_only else "…"
        self.dot = " - " if ascii_only else " · "

    def clean(self, text: str) -> str:
        """The text with nothing left in it that could steer a terminal."""
        shown = printable(text)
        return shown.encode("ascii", "backslashreplace").decode() if self.ascii_only else shown

    def fit(self, text: str, width: int, align: Literal["left", "right"] = "left") -> str:
        """The cleaned text in exactly `width` cells; what is cut off leaves an ellipsis."""
        shown = self.clean(text)
        room = width - cell_len(shown)
        if room < 0:
            return set_cell_size(shown, width - 1) + self.ellipsis if width > 0 else ""
        return " " * room + shown if align == "right" else shown + " " * room


class Inked(Widget):
    """A widget that draws spans."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"ink--{ink}" for ink in INKS}

    def ink(self, name: Ink) -> Style:
        """The style of an ink, or of several over one another, with a background only where the ink has its own."""
        names = [f"ink--{one}" for one in name.split()]
        # Only the full style has colours that the theme gives as a share of the contrast to the background.
        color = self.get_component_rich_style(names[0]).color
        own = [self.get_component_rich_style(one, partial=True) for one in names]
        return Style.combine([own[0], Style(color=color), *own[1:]])

    def strip(self, spans: Iterable[Span], width: int, ground: Ink | None = None) -> Strip:
        """The spans as one line of exactly `width` cells, on the widget's background or that of an ink."""
        line = Strip([Segment(text, self.ink(ink)) for text, ink in spans]).adjust_cell_length(width, Style())
        if ground is not None:
            line = line.apply_style(self.ink(ground))
        return line.apply_style(self.rich_style)


class Lines(Inked):
    """A few lines of spans, replaced as a whole. A line too long for the widget is cut with an ellipsis."""

    def __init__(self, pen: Pen, *, id: str, height: int = 1) -> None:  # noqa: A002  Textual's name for it
        super().__init__(id=id)
        self.pen = pen
        self.styles.height = height
        self._lines: Sequence[Sequence[Span]] = ()

    def show(self, *lines: Sequence[Span]) -> None:
        """Show these lines."""
        if lines != self._lines:
            self._lines = lines
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the widget."""
        spans = self._lines[y] if y < len(self._lines) else ()
        return self.strip(clip(spans, self.size.width, self.pen.ellipsis), self.size.width)


def clip(spans: Sequence[Span], width: int, ellipsis: str) -> list[Span]:
    """The spans cut to `width` cells, with an ellipsis where something was cut off."""
    left = width
    kept: list[Span] = []
    for place, (text, ink) in enumerate(spans):
        size = cell_len(text)
        more = any(rest.strip() for rest, _ in spans[place + 1 :])
        if size < left or (size == left and not more):
            kept.append((text, ink))
            left -= size
            continue
        if left > 0:
            kept.append((set_cell_size(text, left - 1) + ellipsis, ink))
        break
    return kept


def spread(left: Sequence[Span], right: Sequence[Span], width: int, ellipsis: str) -> list[Span]:
    """Two groups of spans at both ends of a line; where they do not fit, the left one is cut."""
    room = width - _cells(right) - 2
    kept = clip(left, room, ellipsis)
    return [*kept, (" " * (room - _cells(kept) + 2), "plain"), *right]


def fill(entries: Iterable[Sequence[Span]], width: int) -> list[list[Span]]:
    """Entries side by side, broken between two of them into lines of `width` cells."""
    lines: list[list[Span]] = []
    for entry in entries:
        if lines and _cells(lines[-1]) + len(_BETWEEN) + _cells(entry) <= width:
            lines[-1] += [(_BETWEEN, "plain"), *entry]
        else:
            lines.append(list(entry))
    return lines


def _cells(spans: Sequence[Span]) -> int:
    return sum(cell_len(text) for text, _ in spans)
