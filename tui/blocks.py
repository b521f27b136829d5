"""Blocks and switches: a row each, and in it a cell a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from rich.cells import cell_len
from textual.binding import Binding, BindingType

from hyp_submit.report import printable
from hyp_submit.views import PartitionView, Picture, Row, Tally, Trouble

from .lines import LineView
from .paint import Pen, Span, clip
from .table import GAP

_INDENT = 1
_STEP = 2
"""Cells by which a row stands in under its partition or switch."""
_NAMES = (8, 24)
"""The least and the greatest width of the names."""
_LEAST_REASON = 10
"""Cells below which a reason is not worth beginning."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the view: cells `start` to `stop` of a row, or a partition's title where there is no row."""

    view: PartitionView
    row: Row | None = None
    start: int = 0
    stop: int = 0

    @property
    def cells(self) -> int:
        """How many cells it has: places for the cursor."""
        return self.stop - self.start


class BlocksView(LineView):
    """The rows of one partition or of all. The cursor stays on its node, whatever moves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "cell(-1)", "Left", id="left", show=False, tooltip="Move to the node on the left"),
        Binding("right,l", "cell(1)", "Right", id="right", show=False, tooltip="Move to the node on the right"),
    ]

    def __init__(self, pen: Pen) -> None:
        super().__init__(pen, id="blocks")
        self._picture: Picture | None = None
        self._views: Sequence[PartitionView] = ()
        self._lines: list[_Line | None] = []
        self._names = _NAMES[0]
        self._healthy, self._free = len("HEALTHY"), len("FREE")
        """Widths of the columns."""
        self._line = 0
        self._cell = 0
        self._wanted = 0
        """The cell that up and down aim at, also across shorter rows."""
        self._job_nodes: frozenset[str] = frozenset()

    # What is shown.

    def show(self, picture: Picture, partition: str | None) -> None:
        """Show a partition, or all (None)."""
        cursor = self.place
        self._picture = picture
        self._views = [view for view in picture.partitions if partition in {None, view.name}]
        if partition is not None and not self._views and picture.partitions:
            self.notice = f"No partition {printable(partition)} any more (p picks another)."
        else:
            self.notice = "No partition has nodes."
        self._lay_out(cursor)

    def on_resize(self) -> None:
        """Break the rows anew."""
        self._lay_out(self.place)

    def _lay_out(self, cursor: tuple[str, str] | None) -> None:
        """Make the lines, and put the cursor back on its node; where that is gone, near to where it was."""
        names = [_STEP * (row.depth + 1) + cell_len(row.name) for view in self._views for row in view.rows]
        names += [cell_len(view.name) for view in self._views]
        # A view that is not on the screen has no size of its own.
        width = self.scrollable_content_region.width or self.app.size.width
        self._names = max(_NAMES[0], min(_NAMES[1], width // 4, max(names, default=0)))
        self._healthy = max([len("HEALTHY"), *(len(_health(view.tally)) for view in self._views)])
        self._free = max([len("FREE"), *(len(str(view.tally.free)) for view in self._views)])
        room = max(1, width - self._cells_at)
        self._lines = list(_lines(self._views, room))
        found = self._find(cursor) if cursor else None
        self._line, self._cell = found or self._nearest(self._line, 1) or self._nearest(0, 1) or (0, 0)
        self.rows_changed()

    @property
    def _cells_at(self) -> int:
        """Where in a line the cells begin."""
        return _INDENT + self._names + GAP + self._healthy + GAP + self._free + GAP

    # The cursor.

    @property
    def place(self) -> tuple[str, str] | None:
        """Partition and node under the cursor."""
        line = self._lines[self._line] if self._line < len(self._lines) else None
        if line is None or line.row is None or not line.cells:
            return None
        return line.view.name, line.row.nodes[line.start + self._cell]

    def _find(self, place: tuple[str, str]) -> tuple[int, int] | None:
        partition, node = place
        for number, line in enumerate(self._lines):
            if line is not None and line.view.name == partition and line.row is not None:
                cells = line.row.nodes[line.start : line.stop]
                if node in cells:
                    return number, cells.index(node)
        return None

    def _nearest(self, number: int, step: int) -> tuple[int, int] | None:
        """The first line from `number` on, in the direction of `step`, that has cells."""
        while 0 <= number < len(self._lines):
            line = self._lines[number]
            if line is not None and line.cells:
                return number, min(self._wanted, line.cells - 1)
            number += step
        return None

    @property
    def row_count(self) -> int:
        """Lines of all partitions shown."""
        return len(self._lines)

    @property
    def cursor_row(self) -> int | None:
        """The line of the cursor's node."""
        return self._line if self.place else None

    def cursor_moved(self) -> None:
        """Find the other nodes of what runs under the cursor."""
        tenants = self._picture.tenants.get(place[1], ()) if self._picture and (place := self.place) else ()
        self._job_nodes = frozenset(node for job in tenants for node in job.nodes)

    def rows_above(self, row: int) -> int:
        """Back to the last line without cells, so that titles come into sight with their first row."""
        above = 0
        while row > above and (line := self._lines[row - above - 1]) is not None and not line.cells:
            above += 1
        return above

    def move(self, rows: int) -> None:
        """Move the cursor by lines; those without cells are stepped over."""
        aim = max(0, min(self._line + rows, len(self._lines) - 1))
        step = 1 if rows > 0 else -1
        self._line, self._cell = self._nearest(aim, step) or self._nearest(aim, -step) or (self._line, self._cell)
        self.show_cursor()

    def move_to_end(self, *, last: bool) -> None:
        """Move the cursor to the first or last node."""
        found = self._nearest(len(self._lines) - 1, -1) if last else self._nearest(0, 1)
        if found and (line := self._lines[found[0]]):
            self._line, self._cell = found[0], line.cells - 1 if last else 0
            self._wanted = self._cell
            self.show_cursor()

    def action_cell(self, cells: int) -> None:
        """Move the cursor within its line, and on to the next one at its end."""
        line = self._lines[self._line] if self._line < len(self._lines) else None
        if line is None:
            return
        aim = self._cell + cells
        if 0 <= aim < line.cells:
            self._cell = aim
        elif found := self._nearest(self._line + cells, cells):
            self._line = found[0]
            beyond = self._lines[self._line]
            self._cell = beyond.cells - 1 if cells < 0 and beyond is not None else 0
        self._wanted = self._cell
        self.show_cursor()

    def click(self, row: int, x: int) -> None:
        """Put the cursor on the cell at the mouse, or on the row's nearest."""
        line = self._lines[row]
        if line is not None and line.cells:
            self._line = row
            self._cell = self._wanted = max(0, min(x - self._cells_at, line.cells - 1))
            self.show_cursor()

    # Drawing.

    def heading(self, width: int) -> list[Span]:
        """The names of the columns."""
        fit = self.pen.fit
        gap = " " * GAP
        names = fit("PARTITION", self._names)
        numbers = fit("HEALTHY", self._healthy, "right") + gap + fit("FREE", self._free, "right")
        return [(f"{' ' * _INDENT}{names}{gap}{numbers}{gap}NODES"[:width], "faint")]

    def draw(self, row: int, width: int) -> list[Span]:
        """One line."""
        line = self._lines[row]
        if line is None:
            return []
        if line.row is None:
            return self._draw_title(line.view, width)
        return self._draw_row(line, line.row, width, has_cursor=row == self._line)

    def _draw_title(self, view: PartitionView, width: int) -> list[Span]:
        spans: list[Span] = [
            (" " * _INDENT, "plain"),
            (self.pen.fit(view.name, self._names), "title"),
            *self._numbers(view.tally, loose=False),
        ]
        if view.partition.state != "UP":
            spans += [(f"{self.pen.clean(view.partition.state)}  ", "broken")]
        return [*spans, (self.pen.fit(view.shape, max(0, width - self._cells_at)), "faint")]

    def _draw_row(self, line: _Line, row: Row, width: int, *, has_cursor: bool) -> list[Span]:
        first = line.start == 0
        indent = _STEP * (row.depth + 1)
        name = self.pen.fit(row.name if first else "", max(0, self._names - indent))
        spans: list[Span] = [
            (" " * (_INDENT + indent), "plain"),
            (name, "strong" if has_cursor else "faint" if row.loose else "plain"),
        ]
        if first:
            spans += self._numbers(row.tally, loose=row.loose)
        else:
            spans += [(" " * (self._cells_at - _INDENT - self._names), "plain")]
        spans += self._cells(line, row, has_cursor=has_cursor)
        left = width - self._cells_at - line.cells - GAP
        if row.trouble is not None and line.stop == len(row.nodes) and left >= _LEAST_REASON:
            spans += [(" " * GAP, "plain"), *self._trouble(row.trouble, left)]
        return spans

    def _trouble(self, trouble: Trouble, width: int) -> list[Span]:
        what = f"{trouble.count} {trouble.condition.word}"
        why = f"  {trouble.reason}" if trouble.reason else ""
        return clip([(what, trouble.condition.hue), (self.pen.clean(why), "faint")], width, self.pen.ellipsis)

    def _numbers(self, tally: Tally, *, loose: bool) -> list[Span]:
        healthy = self.pen.fit(_health(tally), self._healthy, "right")
        free = self.pen.fit("-" if loose else str(tally.free), self._free, "right")
        return [
            (" " * GAP, "plain"),
            (healthy, "plain" if tally.healthy == tally.total else "leaving"),
            (" " * GAP, "plain"),
            (free, "free" if tally.free else "faint"),
            (" " * GAP, "plain"),
        ]

    def _cells(self, line: _Line, row: Row, *, has_cursor: bool) -> Iterator[Span]:
        """The cells; the cursor's is turned around, and those of its job are underlined."""
        nodes, conditions = row.nodes[line.start : line.stop], row.conditions[line.start : line.stop]
        cells: list[Span] = []
        for place, (node, one) in enumerate(zip(nodes, conditions, strict=True)):
            marked = " marked" if node in self._job_nodes else ""
            cursor = " cell" if has_cursor and place == self._cell else ""
            cells.append((one.glyph, one.hue + marked + cursor))
        for ink, run in groupby(cells, key=lambda cell: cell[1]):
            yield "".join(glyph for glyph, _ in run), ink


def _health(tally: Tally) -> str:
    return f"{tally.healthy}/{tally.total}"


def _lines(views: Sequence[PartitionView], room: int) -> Iterator[_Line | None]:
    """The lines of the partitions, their rows broken at `room` cells, with an empty line (None) between two."""
    for place, view in enumerate(views):
        if place:
            yield None
        yield _Line(view)
        for row in view.rows:
            for start in range(0, max(1, len(row.nodes)), room):
                yield _Line(view, row, start, min(start + room, len(row.nodes)))
