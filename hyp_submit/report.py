"""Model -> the JSON documents that scripts rely on, and the lines that a person reads. Pure: no terminal here."""

from __future__ import annotations

import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from textwrap import wrap
from typing import Any, Literal

from hyp_submit.model import Candidate, Fit, Framework, InstanceGroup, Plan, Seat, Workload
from hyp_submit.workload import SIZES

PLAN_SCHEMA = "hyp-submit/plan/1"

Tone = Literal["", "good", "warn", "bad", "dim", "busy", "odd", "title"]
Spans = tuple[tuple[str, Tone], ...]
"""A row of a table in pieces, each with its tone; () is an empty line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line for a person: a label of the left column, and text that may be wrapped under itself."""

    label: str
    text: str
    tone: Tone = ""
    table: bool = False
    """A row of a table: never wrapped."""


def printable(text: str) -> str:
    """The text with everything that could steer a terminal made visible: control, bidi and other format characters."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else f"\\u{ord(character):04x}" for character in text
    )


def stamp(moment: datetime | None) -> str | None:
    """A time in JSON: UTC to the second, `2026-11-30T14:00:00Z`."""
    return None if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(span: timedelta) -> str:
    """A span for a person: `45 s`, `12 min`, `1 h 12 min`, `3 d 4 h`."""
    seconds = max(0, round(span.total_seconds()))
    if seconds < 60:
        return f"{seconds} s"
    minutes = seconds // 60
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


# --- plan ----------------------------------------------------------------------------------------------------------


def plan_json(plan: Plan) -> dict[str, Any]:
    """The plan as the contract has it (schema hyp-submit/plan/1)."""
    workload = plan.workload
    return {
        "schema": PLAN_SCHEMA,
        "partition": plan.partition,
        "topology": {"name": plan.topology.name, "kind": plan.topology.kind},
        "nodes": plan.nodes,
        "gpus_per_node": plan.gpus_per_node,
        "world_size": plan.world_size,
        "workload": {
            "framework": workload.framework,
            **{size: getattr(workload, size) for size in SIZES},
            "inner_gpus": plan.inner_gpus,
            "inner_nodes": plan.inner_nodes,
            "sources": dict(workload.sources),
        },
        "segment": plan.segment,
        "segments": plan.segments,
        "switches": plan.switches,
        "fit": {
            "now": plan.fit.now,
            "ever": plan.fit.ever,
            "possible": plan.fit.possible,
            "earliest": stamp(plan.fit.earliest),
        },
        "placement": [
            {"segment": seat.segment, "block": seat.block, "switch": seat.switch, "nodes": list(seat.nodes)}
            for seat in plan.fit.seats
        ],
        "candidates": [_candidate_json(candidate) for candidate in plan.candidates],
        "ranks": {"aligned": False, "groups": plan.group_count, "split": plan.group_split},
        "sbatch": list(plan.sbatch),
        "warnings": [{"code": note.code, "message": note.message} for note in plan.warnings],
        "errors": [{"code": note.code, "message": note.message} for note in plan.errors],
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        "segment": candidate.segment,
        "needed": candidate.needed,
        "free": candidate.free,
        "healthy": candidate.healthy,
        "total": candidate.total,
        "spare": candidate.spare,
        "earliest": stamp(candidate.fit.earliest),
        "legal": candidate.legal,
        "why": candidate.why,
    }


def error_json(code: str, message: str) -> dict[str, Any]:
    """What stands on stdout instead of a plan that could not be made."""
    return {"schema": PLAN_SCHEMA, "errors": [{"code": code, "message": message}]}


def open_lines(workload: Workload) -> Iterator[Line]:
    """What the files leave open, and the flag that settles each."""
    for question in workload.open:
        yield Line("open", f"{question.field.upper()}: {question.why}; say {question.flag}", "warn")


def plan_lines(
    plan: Plan, now: datetime, script: str | None, framework: Framework | None, call: Sequence[str]
) -> Iterator[Line]:
    """The plan for a person, as the design's screens have it; `call` is the sbatch that it comes to."""
    title = f"{framework.title}, " if framework else ""
    what = f"{title}{plan.nodes} nodes"
    if plan.gpus_per_node:
        what += f" x {plan.gpus_per_node} GPUs = {plan.world_size} GPUs"
    yield Line("plan", f"{script + ': ' if script else ''}{what}", "good")
    if sizes := list(_sizes(plan)):
        yield Line("sizes", "  ".join(sizes))
    yield from open_lines(plan.workload)
    if plan.groups:
        named = ", ".join(f"{group.name} = {group.gpus} GPUs" for group in plan.groups)
        if plan.topology.kind == "block":
            named += (
                f": a segment must be a multiple of {plan.inner_nodes} nodes to keep them in one NVLink domain"
                if plan.inner_nodes > 1
                else ": each within a node, any segment keeps them whole"
            )
        yield Line("groups", named)
    yield Line("partition", _partition(plan))
    if plan.topology.kind == "block":
        yield from _table(plan, now)
    yield Line("asks Slurm", shlex.join(call))
    yield from _outcome(plan, now)
    for note in plan.warnings:
        yield Line("warning", f"{note.message} [{note.code}]", "warn")
    for note in plan.errors:
        yield Line("error", f"{note.message} [{note.code}]", "bad")


def summary(plan: Plan) -> str:
    """A plan in one line: what is asked for, and whether it starts."""
    size = "no segment" if plan.segment is None else f"segment {plan.segment}"
    if plan.topology.kind == "flat":
        size = "any nodes"
    if plan.topology.kind == "tree":
        size = "any switches" if plan.switches is None else f"{plan.switches} leaf switch{'es' * (plan.switches > 1)}"
    groups = ""
    if plan.groups and plan.topology.kind == "block":
        split = f"{plan.group_split} of {plan.group_count} groups split"
        groups = f", {split if plan.group_split else 'groups whole'}"
    starts = ""
    if not plan.fit.now:
        starts = "; nothing is free for it now" if plan.fit.ever else "; possible once the missing nodes are there"
    return f"{plan.nodes} node{'s' * (plan.nodes != 1)} in {plan.partition}, {size}{groups}{starts}"


def _sizes(plan: Plan) -> Iterator[str]:
    for size in SIZES:
        value = getattr(plan.workload, size)
        if value is not None:
            source = plan.workload.sources.get(size)
            yield f"{size.upper()} {value}" + (f" ({source})" if source else "")


def _partition(plan: Plan) -> str:
    topology, census = plan.topology, plan.census
    nodes = f"{census.healthy} of {census.total} nodes healthy, {census.free} free"
    if census.coming:
        nodes += f", {census.coming} still to come"
    if topology.kind == "block":
        size = topology.block_sizes[0] if topology.block_sizes else "?"
        count = len(topology.blocks)
        return f"{plan.partition}, block topology, {count} block{'s' * (count != 1)} of {size}; {nodes}"
    if topology.kind == "tree":
        leaves = sum(bool(switch.nodes) for switch in topology.switches)
        return f"{plan.partition}, tree topology, {leaves} leaf switches; {nodes}"
    return f"{plan.partition}, no topology; {nodes}"


def _table(plan: Plan, now: datetime) -> Iterator[Line]:
    yield Line("", "  segment  needed  free now  healthy  starts         groups", "dim", table=True)
    for candidate in plan.candidates:
        chosen = candidate.fit is plan.fit and candidate.segment == plan.segment
        name = "none" if candidate.segment is None else str(candidate.segment)
        remark = ("whole" if candidate.why is None else f"whole; {candidate.why}") if candidate.legal else candidate.why
        yield Line(
            "",
            f"{'>' if chosen else ' '} {name:>7}  {candidate.needed:>6}  {candidate.free:>8}  {candidate.healthy:>7}  "
            f"{_starts(candidate.fit, now):<13}  {remark}",
            "good" if chosen else "",
            table=True,
        )


def _starts(fit: Fit, now: datetime) -> str:
    if fit.now:
        return "now"
    if fit.earliest is not None:
        return f"in {duration(fit.earliest - now)}"
    if fit.ever:
        return "unknown"
    return "not yet" if fit.possible else "never"


def _outcome(plan: Plan, now: datetime) -> Iterator[Line]:
    fit = plan.fit
    if fit.seats:
        taken: dict[str, int] = {}
        for seat in fit.seats:
            taken[_place(seat, plan)] = taken.get(_place(seat, plan), 0) + len(seat.nodes)
        places = ", ".join(f"{place} ({count} nodes)" for place, count in taken.items())
        yield Line("would take", places)
    if fit.now:
        yield Line("starts", "now", "good")
    elif fit.earliest is not None:
        yield Line("starts", f"in {duration(fit.earliest - now)} ({stamp(fit.earliest)}) if nobody is ahead", "warn")
    elif fit.ever:
        yield Line("starts", "behind a job without a known end", "warn")
    elif fit.possible:
        yield Line(
            "starts", "not on the nodes that Slurm can use now; possible once the missing ones are there", "warn"
        )


def _place(seat: Seat, plan: Plan) -> str:
    return seat.block or seat.switch or plan.partition


# --- hold ----------------------------------------------------------------------------------------------------------


def bar(group: InstanceGroup, width: int = 16) -> str:
    """How far a group is, `########--------`, by CurrentCount of TargetCount; empty for a target of 0."""
    if group.target <= 0:
        return ""
    done = min(width, group.current * width // group.target)
    return "#" * done + "-" * (width - done)


def group_text(group: InstanceGroup) -> str:
    """One instance group in a line."""
    return (
        f"{group.name} {group.status} {bar(group)} {group.current} of {group.target} (MinCount {group.min})"
    ).replace("  ", " ")


def plain(lines: Iterable[Line], width: int) -> Iterator[str]:
    """Lines as text of at most `width` columns; labels in a column of their own."""
    indent = " " * 12
    for line in lines:
        text = printable(line.text)
        if line.table:
            yield text[:width]
            continue
        head = f"{line.label:<12}" if line.label else indent
        for place, piece in enumerate(wrap(text, max(20, width - 12), break_on_hyphens=False) or [""]):
            yield (head if place == 0 else indent) + piece
