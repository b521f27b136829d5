"""The table of ratios: what, ours, theirs, their ratio, the goal, and whether it was met."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Self

from bench.probe import Result

_HEAD = ("what", "ours", "against", "theirs", "ratio", "goal", "")


class Row(NamedTuple):
    """One line. `ratio` is ours to theirs; None where one of them failed."""

    what: str
    ours: str
    against: str
    theirs: str
    ratio: float | None
    goal: float
    met: bool

    @classmethod
    def of_times(cls, what: str, ours: Result, against: str, theirs: Result, goal: float) -> Self:
        """Compares best times."""
        return cls._of(what, ours, against, theirs, goal, lambda one: one["seconds"], _seconds)

    @classmethod
    def of_memory(cls, what: str, ours: Result, against: str, theirs: Result, goal: float) -> Self:
        """Compares peak memories."""
        return cls._of(what, ours, against, theirs, goal, lambda one: one["memory"], _megabytes)

    @classmethod
    def _of(
        cls,
        what: str,
        ours: Result,
        against: str,
        theirs: Result,
        goal: float,
        figure: Callable[[Result], float],
        write: Callable[[float], str],
    ) -> Self:
        def shown(one: Result) -> str:
            return f"{one['failed']} at {write(figure(one))}" if one["failed"] else write(figure(one))

        # Theirs, if killed, had taken that much by then: the whole would be more, and the true ratio is even smaller.
        ratio = None if ours["failed"] else figure(ours) / figure(theirs)
        return cls(what, shown(ours), against, shown(theirs), ratio, goal, ratio is not None and ratio <= goal)


def lines(rows: Iterable[Row]) -> Iterator[str]:
    """For people: columns."""
    table = [_HEAD, *map(_cells, rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "-" if row.ratio is None else f"{row.ratio:.3g}"
    return row.what, row.ours, row.against, row.theirs, ratio, f"<= {row.goal:.3g}", "met" if row.met else "NOT MET"


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s"


def _megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"
