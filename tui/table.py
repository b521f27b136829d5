"""Columns that fit a width: the least important ones go first, and one takes what is left. Pure."""

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
    """Cells; for the elastic one the least that it is worth showing with."""
    align: Literal["left", "right"] = "left"
    keep: int = 0
    """Where the width does not hold all columns, those with the lowest number go first."""
    elastic: bool = False
    """Whether it takes the room that the others leave; one column of a table does."""


def fit_columns(columns: Sequence[Column], width: int) -> tuple[Column, ...]:
    """The columns that fit in `width` cells, the elastic one stretched over the rest. One column always stays."""
    kept = list(columns)
    while len(kept) > 1 and _needed(kept) > width:
        kept.remove(min(kept, key=lambda column: column.keep))
    spare = max(0, width - _needed(kept))
    return tuple(replace(column, width=column.width + spare) if column.elastic else column for column in kept)


def _needed(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + GAP * (len(columns) - 1)
