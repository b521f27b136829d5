"""Node names: their order in slurmctld's table, and hostlists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hyp_submit.errors import UsageError

_DIGITS = re.compile(r"(\d+)")
MAX_NODES = 200_000
"""A hostlist that unfolds to more is taken for a mistake (`n[1-999999999]`)."""
_RANGE = re.compile(r"\s*(\d+)-(\d+)")


def natural_key(name: str) -> tuple[Any, ...]:
    """Sort key for the order of slurmctld's node table: digits compare as numbers (facts: ip-10-1-0-9 before -10).

    Equal numbers of other width (`n1`, `n01`) keep the order of the plain strings.
    """
    parts = _DIGITS.split(name)
    return (*((int(part), part) if place % 2 else part for place, part in enumerate(parts)), name)


def _count(item: str) -> int:
    """How many names one item of a hostlist stands for, counted without unfolding it."""
    count = 1
    for bracket in re.findall(r"\[([^\]]*)\]", item):
        spans = [_RANGE.match(part) for part in bracket.split(",")]
        count *= sum(abs(int(span[2]) - int(span[1])) + 1 if span else 1 for span in spans)
    return count


def expand(text: str) -> tuple[str, ...]:
    """The names of a Slurm hostlist (`ip-10-1-[0-1]-[4-9],login1`), in the order written; () for an empty one.

    Raises UsageError naming the faulty text.
    """
    text = text.strip()
    if text in {"", "(null)", "None"}:
        return ()
    if "[" not in text:
        return tuple(name for part in text.split(",") if (name := part.strip()))
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError  # noqa: PLC0415  50 ms that a plain list need not pay

    items = _split(text)
    if sum(map(_count, items)) > MAX_NODES:
        raise UsageError(f"node list {text[:60]!r}: names more than {MAX_NODES} nodes")
    names: list[str] = []
    for item in items:
        if "[" not in item:
            names.append(item)
            continue
        try:
            names.extend(NodeSet(item, resolver=None))
        except NodeSetParseError as error:
            raise UsageError(f"node list {text[:60]!r}: {error}") from error
    return tuple(names)


def _split(text: str) -> list[str]:
    """The items of a hostlist at the commas outside brackets."""
    return [item for item in (part.strip() for part in re.split(r",(?![^\[]*\])", text)) if item]


def fold(names: Iterable[str]) -> str:
    """A hostlist of the names, folded on the last number only; "" for none.

    One axis keeps it quick on `ip-a-b-c-d` names, whose four numbers ClusterShell would fold over all at once.
    """
    runs: dict[tuple[str, str], list[str]] = {}
    plain: list[str] = []
    for name in sorted(set(names), key=natural_key):
        match = re.fullmatch(r"(.*?)(\d+)(\D*)", name)
        if match:
            runs.setdefault((match[1], match[3]), []).append(match[2])
        else:
            plain.append(name)
    return ",".join([*plain, *(f"{head}{_ranges(numbers)}{tail}" for (head, tail), numbers in runs.items())])


def _ranges(numbers: list[str]) -> str:
    """`["4", "5", "9"]` -> `[4-5,9]`; a number alone has no brackets; widths are kept apart, so padding survives."""
    spans: list[list[str]] = []
    for number in numbers:
        last = spans[-1][-1] if spans else None
        if last is not None and len(last) == len(number) and int(number) == int(last) + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    text = ",".join("-".join(span) for span in spans)
    return text if len(numbers) == 1 else f"[{text}]"
