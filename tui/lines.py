"""A scrolling view of many rows, drawn a line at a time: its cost is that of the screen, not of the cluster."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size, Spacing
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollBarRender
from textual.strip import Strip

from .paint import Inked, Pen, Span

_HEADING = 1
"""Lines of the viewport that do not scroll."""


class AsciiScrollBar(ScrollBarRender):
    """A scroll bar of backgrounds alone, without block characters at its ends."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8


class LineView(ScrollView, Inked, can_focus=True):
    """Rows with a cursor on one of them.

    What the rows are is the subclass's: it says how many there are (`row_count`), draws one (`draw`), and is told when
    the cursor is moved by some rows (`move`) or to the first or last (`move_to_end`).
    """

    ALLOW_MAXIMIZE = False
    # Textual follows the first base alone for these.
    COMPONENT_CLASSES: ClassVar[set[str]] = Inked.COMPONENT_CLASSES
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", id="up", show=False, tooltip="Move the cursor up"),
        Binding("down,j", "move(1)", "Down", id="down", show=False, tooltip="Move the cursor down"),
        Binding("pageup,ctrl+u", "page(-1)", "Page up", id="page-up", show=False, tooltip="Move up by a screenful"),
        Binding("pagedown,ctrl+d", "page(1)", "Page down", id="page-down", show=False, tooltip="A screenful down"),
        Binding("g,home", "end(False)", "First", id="first", show=False, tooltip="Move to the first row"),
        Binding("G,end", "end(True)", "Last", id="last", show=False, tooltip="Move to the last row"),
        Binding("tab,shift+tab", "app.next_view", "Next view", id="next-view", show=False, tooltip="Next view"),
    ]

    class Moved(Message):
        """The cursor is on something else now, or what it is on has changed."""

    def __init__(self, pen: Pen, *, id: str) -> None:  # noqa: A002  Textual's name for it
        super().__init__(id=id)
        self.pen = pen
        self.notice = ""
        """What stands in place of rows where there are none."""
        self._row_before: int | None = None
        """Where the cursor was last seen to be."""

    # What a subclass says.

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        raise NotImplementedError

    @property
    def cursor_row(self) -> int | None:
        """The row that the cursor is on; None where there is nothing to be on."""
        raise NotImplementedError

    def draw(self, row: int, width: int) -> list[Span]:
        """One row in at most `width` cells."""
        raise NotImplementedError

    def move(self, rows: int) -> None:
        """Move the cursor down by so many rows (up where negative), as far as there are any."""
        raise NotImplementedError

    def move_to_end(self, *, last: bool) -> None:
        """Move the cursor to the first or the last row."""
        raise NotImplementedError

    def click(self, row: int, x: int) -> None:
        """The mouse was pressed on a row, `x` cells from the left."""
        raise NotImplementedError

    def heading(self, width: int) -> list[Span]:
        """The line above the rows, which does not scroll."""
        raise NotImplementedError

    def ground(self, row: int) -> str | None:  # noqa: ARG002  for subclasses
        """The ink whose background the row has; None: the view's own."""
        return None

    def cursor_moved(self) -> None:
        """The cursor is on something else, or what it is on has changed."""

    def rows_above(self, row: int) -> int:  # noqa: ARG002  for subclasses
        """How many rows above the cursor's should be seen with it: headings."""
        return 0

    # The rest is common.

    def rows_changed(self) -> None:
        """To be called when rows were replaced: paints again, and leaves the cursor where it is on the screen.

        Where it is off the screen, because someone scrolled away from it, the rest stays instead.
        """
        before, row = self._row_before, self.cursor_row
        in_sight = before is None or 0 <= before - round(self.scroll_y) < self.size.height - _HEADING
        self.virtual_size = Size(0, self.row_count + _HEADING)
        if before is not None and row is not None and in_sight:
            self.scroll_to(y=self.scroll_y + row - before, animate=False, force=True, immediate=True)
        self._show(scroll=in_sight)

    def show_cursor(self) -> None:
        """Scroll to the cursor and tell the app what it is on."""
        self._show(scroll=True)

    def _show(self, *, scroll: bool) -> None:
        self._row_before = row = self.cursor_row
        self.cursor_moved()
        if scroll and row is not None:
            above = self.rows_above(row)
            self.scroll_to_region(
                Region(0, row - above + _HEADING, 1, 1 + above),
                spacing=Spacing(top=_HEADING),
                animate=False,
                force=True,
                immediate=True,
            )
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        """A line of the viewport: the heading, then rows from where it is scrolled to."""
        width = self.scrollable_content_region.width
        if not self.row_count:
            return self.strip([("  " + self.pen.fit(self.notice, width - 2), "faint")] if y == 1 else (), width)
        if y < _HEADING:
            return self.strip(self.heading(width), width)
        row = self._row_at(y)
        if row >= self.row_count:
            return self.strip((), width)
        return self.strip(self.draw(row, width), width, self.ground(row))

    def _row_at(self, y: int) -> int:
        return y - _HEADING + round(self.scroll_y)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is."""
        if event.y >= _HEADING and (row := self._row_at(event.y)) < self.row_count:
            self.click(row, event.x)

    def on_show(self) -> None:
        """Scroll to the cursor: what is not on the screen cannot be scrolled."""
        self.show_cursor()

    def action_move(self, rows: int) -> None:
        """Up or down."""
        self.move(rows)

    def action_page(self, pages: int) -> None:
        """Up or down by as many rows as are seen at once, less one to keep the place by."""
        self.move(pages * max(1, self.size.height - _HEADING - 1))

    def action_end(self, last: bool) -> None:
        """To the first or last row."""
        self.move_to_end(last=last)
