"""What nodes there are, for `blocks` and `status`: a cluster's picture -> JSON documents, and rows for a person.

Nothing here decides anything: places and conditions come from `views`, whole segments from `place`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hyp_submit.model import Cluster, InstanceGroup, Node
from hyp_submit.nodes import fold
from hyp_submit.place import whole_segments
from hyp_submit.report import Spans, Tone, bar, printable, stamp
from hyp_submit.views import Condition, Hue, PartitionView, Picture, Row, plain_reason

BLOCKS_SCHEMA = "hyp-submit/blocks/1"
STATUS_SCHEMA = "hyp-submit/status/1"

USEFUL_SEGMENTS = (1, 2, 4, 6, 8, 9, 16, 18)
"""Segment sizes that jobs ask for on blocks of 18 or 9 nodes."""

_TONES: Mapping[Hue, Tone] = {
    "free": "good",
    "busy": "busy",
    "claimed": "warn",
    "leaving": "warn",
    "broken": "bad",
    "absent": "dim",
    "unknown": "odd",
}


def partitions_of(picture: Picture, wanted: str | None) -> tuple[PartitionView, ...]:
    """The partitions to show: the one wanted, or all."""
    return tuple(view for view in picture.partitions if wanted is None or view.name == wanted)


# --- blocks --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Segments:
    """How many whole segments of a size a partition's blocks hold."""

    size: int
    free: int
    """On nodes that are free now."""
    healthy: int
    """On healthy nodes, once all jobs have ended."""
    total: int
    """With every node healthy."""


def segments(view: PartitionView) -> tuple[Segments, ...]:
    """The useful sizes that a block of the partition can hold, smallest first; () where it has no blocks."""
    if view.topology.kind != "block":
        return ()
    blocks = [row.tally for row in view.rows if not row.loose]
    largest = max((tally.total for tally in blocks), default=0)
    base = view.topology.block_sizes[0] if view.topology.block_sizes else largest
    sizes = sorted({size for size in (*USEFUL_SEGMENTS, base) if size <= largest})
    return tuple(
        Segments(
            size,
            whole_segments([tally.free for tally in blocks], size, base),
            whole_segments([tally.healthy for tally in blocks], size, base),
            whole_segments([tally.total for tally in blocks], size, base),
        )
        for size in sizes
    )


def blocks_json(picture: Picture, views: Sequence[PartitionView]) -> dict[str, Any]:
    """The document of `blocks --json` (schema hyp-submit/blocks/1)."""
    return {
        "schema": BLOCKS_SCHEMA,
        "cluster": picture.cluster.name,
        "taken_at": stamp(picture.cluster.taken_at),
        "partitions": [
            {
                "name": view.name,
                "state": view.partition.state,
                "topology": {
                    "name": view.topology.name,
                    "kind": view.topology.kind,
                    "block_sizes": list(view.topology.block_sizes),
                },
                "nodes": _tally_json(view.tally),
                "places": [_place_json(picture, view, row) for row in view.rows],
                "segments": [
                    {"size": one.size, "free": one.free, "healthy": one.healthy, "total": one.total}
                    for one in segments(view)
                ],
            }
            for view in views
        ],
    }


def _tally_json(tally: Any) -> dict[str, int]:
    return {"total": tally.total, "healthy": tally.healthy, "free": tally.free}


def _place_json(picture: Picture, view: PartitionView, row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": _kind(view, row),
        "depth": row.depth,
        **_tally_json(row.tally),
        "nodes": [
            {
                "name": name,
                "state": node.state if node else None,
                "condition": condition.word,
                "reason": node.reason if node else None,
                "jobs": [job.id for job in picture.tenants.get(name, ())],
            }
            for name, condition in zip(row.nodes, row.conditions, strict=True)
            for node in [picture.cluster.node.get(name)]
        ],
    }


def _kind(view: PartitionView, row: Row) -> Literal["block", "switch", "nodes", "loose"]:
    if row.loose:
        return "loose"
    return {"block": "block", "tree": "switch", "flat": "nodes"}[view.topology.kind]  # type: ignore[return-value]


def blocks(views: Sequence[PartitionView], width: int) -> Iterator[Spans]:
    """The rows of `blocks`: each partition with a row a block or switch, and its table of whole segments."""
    for place, view in enumerate(views):
        if place:
            yield ()
        yield _title(view)
        if view.tally.total == 0:
            yield (("  no nodes yet", "dim"),)
            continue
        names = max(len(printable(row.name)) + 2 * row.depth for row in view.rows)
        for row in view.rows:
            yield from _row(row, names, width)
        yield from _segment_table(segments(view))


def _title(view: PartitionView) -> Spans:
    tally, state = view.tally, view.partition.state
    return (
        (printable(view.name), "title"),
        (f" {printable(state)}" if state != "UP" else "", "bad"),
        (f"   {view.shape}", "dim"),
        (f"   {tally.healthy} of {tally.total} nodes healthy, {tally.free} free", ""),
    )


def _row(row: Row, names: int, width: int) -> Iterator[Spans]:
    """A block's row; its cells go on in further lines where there are too many for the width."""
    head = f"  {'  ' * row.depth}{printable(row.name):<{names - 2 * row.depth}}  "
    numbers = f"{f'{row.tally.healthy}/{row.tally.total}':>7}  {row.tally.free:>4} free  "
    room = max(10, width - len(head) - len(numbers))
    cells: list[tuple[str, Tone]] = [(one.glyph, _TONES[one.hue]) for one in row.conditions]
    numbered: Spans = ((head, "dim" if row.loose else ""), (numbers, "" if row.tally.free else "dim"))
    first = (*numbered, *_joined(cells[:room]))
    left = room - len(cells[:room])
    if row.trouble is not None and len(cells) <= room and left > 12:
        reason = f": {printable(row.trouble.reason)}" if row.trouble.reason else ""
        text = f"  {row.trouble.count} {row.trouble.condition.word}{reason}"
        first = (*first, (text[:left], _TONES[row.trouble.condition.hue]))
    yield first
    for start in range(room, len(cells), room):
        yield ((" " * (len(head) + len(numbers)), ""), *_joined(cells[start : start + room]))


def _joined(cells: Iterable[tuple[str, Tone]]) -> Iterator[tuple[str, Tone]]:
    """Cells of one tone as one span."""
    text, tone = "", None
    for glyph, own in cells:
        if own != tone and tone is not None:
            yield text, tone
            text = ""
        text, tone = text + glyph, own
    if tone is not None:
        yield text, tone


def _segment_table(rows: Sequence[Segments]) -> Iterator[Spans]:
    if not rows:
        return
    widths = [max(4, len(str(one.total)) + 1) for one in rows]
    whole = rows[0].healthy * rows[0].size

    def line(label: str, numbers: Iterable[int], tone: Tone = "") -> Spans:
        cells = "".join(f"{number:>{width}}" for number, width in zip(numbers, widths, strict=True))
        return ((f"  {label:<20}", "dim"), (cells, tone))

    yield ()
    yield line("segment size", (one.size for one in rows), "dim")
    yield line("whole ones free now", (one.free for one in rows), "good")
    yield line("once jobs have ended", (one.healthy for one in rows))
    yield line("healthy nodes lost", (whole - one.healthy * one.size for one in rows), "dim")


# --- status --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Problem:
    """Nodes that are out of use for one reason."""

    condition: Condition
    reason: str | None
    nodes: tuple[str, ...]


def problems(picture: Picture, view: PartitionView) -> tuple[Problem, ...]:
    """The unusable nodes of a partition by condition and reason, the most first."""
    found: dict[tuple[Condition, str | None], list[str]] = defaultdict(list)
    for row in view.rows:
        for name, condition in zip(row.nodes, row.conditions, strict=True):
            node = picture.cluster.node.get(name)
            if node is not None and not node.healthy:
                found[condition, plain_reason(node.reason)].append(name)
    groups = sorted(found.items(), key=lambda item: (-len(item[1]), item[0][0].word))
    return tuple(Problem(condition, reason, tuple(names)) for (condition, reason), names in groups)


def kinds(cluster: Cluster, view: PartitionView) -> tuple[tuple[int, int], ...]:
    """How many nodes of the partition have how many GPUs: (nodes, GPUs of each), most GPUs first."""
    nodes = [node for name in view.partition.nodes if (node := cluster.node.get(name)) is not None]
    return tuple((count, gpus) for gpus, count in sorted(Counter(node.gpus for node in nodes).items(), reverse=True))


def status_json(picture: Picture, views: Sequence[PartitionView]) -> dict[str, Any]:
    """The document of `status --json` (schema hyp-submit/status/1)."""
    cluster = picture.cluster
    return {
        "schema": STATUS_SCHEMA,
        "cluster": cluster.name,
        "taken_at": stamp(cluster.taken_at),
        "slurm_version": cluster.slurm_version,
        "partitions": [
            {
                "name": view.name,
                "state": view.partition.state,
                "default": view.partition.default,
                "topology": {"name": view.topology.name, "kind": view.topology.kind},
                "nodes": {**_tally_json(view.tally), "in_use": _in_use(picture, view)},
                "gpus": [{"nodes": nodes, "gpus_per_node": gpus} for nodes, gpus in kinds(cluster, view)],
                "problems": [
                    {"condition": one.condition.word, "reason": one.reason, "nodes": list(one.nodes)}
                    for one in problems(picture, view)
                ],
                "instance_groups": [_group_json(group) for group in cluster.groups_of(view.name)],
            }
            for view in views
        ],
    }


def _group_json(group: InstanceGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "status": group.status,
        "current": group.current,
        "target": group.target,
        "min": group.min,
        "instance_type": group.instance_type,
        "ultraservers": dict(group.ultraservers),
    }


def _in_use(picture: Picture, view: PartitionView) -> int:
    nodes = (picture.cluster.node.get(name) for name in view.partition.nodes)
    return sum(node is not None and _busy(node) for node in nodes)


def _busy(node: Node) -> bool:
    return node.base in {"ALLOCATED", "MIXED"} or "COMPLETING" in node.flags


def status(picture: Picture, views: Sequence[PartitionView], width: int) -> Iterator[Spans]:
    """The rows of `status`: a line a partition, under it what is out of use and why, and its instance groups."""
    cluster = picture.cluster
    names = max((len(printable(view.name)) for view in views), default=0)
    for view in views:
        tally, state = view.tally, view.partition.state
        numbers = f"{tally.free:>5} free {_in_use(picture, view):>5} in use {tally.total - tally.healthy:>4} out"
        mixed = kinds(cluster, view)
        shape = f"{view.shape}{', the default' if view.partition.default else ''}"
        yield (
            (f"{printable(view.name):<{names}}", "title"),
            (f"  {printable(state):<5}", "good" if state == "UP" else "bad"),
            (f"{tally.total:>5} nodes ", ""),
            (numbers, ""),
            (f"   {shape}", "dim"),
        )
        if len(mixed) > 1:
            yield ((f"  all kinds in one: {', '.join(f'{count} of {gpus} GPUs' for count, gpus in mixed)}", "dim"),)
        for one in problems(picture, view):
            reason = f": {printable(one.reason)}" if one.reason else ""
            where = f"  {fold(one.nodes)}"
            yield ((f"  {len(one.nodes)} {one.condition.word}{reason}", _TONES[one.condition.hue]), (where, "dim"))
        for group in cluster.groups_of(view.name):
            yield from _group_rows(group, width)


def _group_rows(group: InstanceGroup, width: int) -> Iterator[Spans]:
    kind = f"   {group.instance_type}" if group.instance_type else ""
    yield (
        (f"  {printable(group.name)} ", ""),
        (printable(group.status), "good" if group.status == "InService" else "warn"),
        (f" {bar(group)} {group.current} of {group.target} (MinCount {group.min})", ""),
        (printable(kind), "dim"),
    )
    if group.ultraservers:
        text = ", ".join(f"{printable(name)} {count}" for name, count in group.ultraservers)
        yield ((f"    UltraServers: {text}"[:width], "dim"),)
