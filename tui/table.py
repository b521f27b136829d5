"""Columns that fit a width: the least important ones go first, and what is left is shared out. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

GAP = 2
"""Cells between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    name: str
    width: int
    """Cells that it is shown with at least."""
    align: Literal["left", "right"] = "left"
    keep: int = 0
    """Where the width does not hold all columns, those with the lowest number go first."""
    most: int = 0
    """Cells that it can make use of, where there are more than the columns need; 0: no more than `width`."""


def fit_columns(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """The columns that fit in `width` cells, from left to right stretched over the rest. One column always stays."""
    kept = list(columns)
    while len(kept) > 1 and _needed(kept) > width:
        kept.remove(min(kept, key=lambda column: column.keep))
    spare = max(0, width - _needed(kept))
    for place, column in enumerate(kept):
        more = min(spare, max(0, column.most - column.width))
        kept[place] = replace(column, width=column.width + more)
        spare -= more
    return tuple(kept)


def _needed(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)
