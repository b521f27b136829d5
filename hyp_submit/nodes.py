"""Node names: their order in slurmctld's table, and hostlists.

Slurm's hostlists are a small language (brackets, ranges, padding, several brackets in a name) that keeps the order in
which names are written; general node-set libraries sort, and read operators and groups that Slurm does not have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby, product
from math import prod

from hyp_submit.errors import UsageError

MAX_NODES = 200_000
"""A hostlist that unfolds to more is taken for a mistake (`n[1-999999999]`)."""

_DIGITS = re.compile(r"([0-9]+)")
_COMMAS = re.compile(r",(?![^\[\]]*\])")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_SPAN = re.compile(r"([0-9]{1,30})(?:-([0-9]{1,30}))?")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)", re.DOTALL)

Key = tuple[tuple[str | tuple[int, str], ...], str]


def natural_key(name: str) -> Key:
    """Sort key for the order of slurmctld's node table: digits compare as numbers (ip-10-1-0-9 before ip-10-1-0-10).

    Equal numbers of other width (`n1`, `n01`) keep the order of the plain strings.
    """
    parts = _DIGITS.split(name)
    return tuple((int(part), part) if place % 2 else part for place, part in enumerate(parts)), name


def expand(text: str) -> tuple[str, ...]:
    """The names of a Slurm hostlist (`ip-10-1-[0-1]-[4-9],login1`), in the order written; () for an empty one.

    Raises UsageError naming the faulty text.
    """
    text = text.strip()
    if text in {"", "(null)", "None"}:
        return ()
    names: list[str] = []
    for item in filter(None, map(str.strip, _COMMAS.split(text))):
        # Odd pieces are the insides of brackets.
        pieces = [_spans(piece, text) if place % 2 else piece for place, piece in enumerate(_BRACKETS.split(item))]
        if any(isinstance(piece, str) and set(piece) & set("[]") for piece in pieces):
            raise UsageError(f"node list {text[:60]!r}: a bracket without its other half")
        count = prod(sum(span.stop - span.start for span, _ in piece) for piece in pieces if not isinstance(piece, str))
        if len(names) + count > MAX_NODES:
            raise UsageError(f"node list {text[:60]!r}: names more than {MAX_NODES} nodes")
        names.extend(map("".join, product(*map(_choices, pieces))))
    return tuple(names)


_Spans = list[tuple[range, int]]
"""Ranges of numbers, each with the width to which its numbers are padded."""


def _spans(inside: str, text: str) -> _Spans:
    """The ranges of a bracket's inside; `text`, the whole list, is for errors."""
    spans = []
    for part in inside.split(","):
        match = _SPAN.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UsageError(f"node list {text[:60]!r}: {part!r} is neither a number nor a range")
        spans.append((range(int(match[1]), int(match[2] or match[1]) + 1), len(match[1])))
    return spans


def _choices(piece: str | _Spans) -> Iterable[str]:
    """What may stand in this place of a name."""
    if isinstance(piece, str):
        return (piece,)
    return [f"{number:0{width}}" for span, width in piece for number in span]


def fold(names: Iterable[str]) -> str:
    """A hostlist of the names in natural order, without doubles, folded on the last number only; "" for none.

    One axis is enough for `ip-a-b-c-d` names, whose four numbers could be folded over all at once.
    """
    ordered = sorted(set(names), key=natural_key)
    return ",".join(item for around, run in groupby(ordered, key=_around) for item in _fold_run(around, list(run)))


def _around(name: str) -> tuple[str, str] | None:
    """What stands before and after the last number of a name; None where it has none."""
    match = _LAST_NUMBER.fullmatch(name)
    return (match[1], match[3]) if match else None


def _fold_run(around: tuple[str, str] | None, run: list[str]) -> Iterator[str]:
    """Names that differ in the last number only, as one item; others as they are."""
    if around is None or len(run) == 1:
        yield from run
        return
    head, tail = around
    spans: list[list[str]] = []
    for number in (name[len(head) : len(name) - len(tail)] for name in run):
        last = spans[-1][-1] if spans else ""
        if last and len(last) == len(number) and int(number) == int(last) + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    yield f"{head}[{','.join('-'.join(span) for span in spans)}]{tail}"
