"""The queue, for `jobs`: which jobs, arrays folded, where they are -> a JSON document, and rows for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hyp_submit.model import Job
from hyp_submit.nodes import fold
from hyp_submit.report import Spans, Tone, printable, stamp
from hyp_submit.views import Picture, outlook

JOBS_SCHEMA = "hyp-submit/jobs/1"


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the queue: a job, a component of one, or the tasks of an array that are in the same state."""

    label: str
    """The id as Slurm writes it: `812`, `40_7`, `40_[1-3]`, `41+0`."""
    job: Job
    """The job, or the first of the tasks."""
    tasks: int
    """How many tasks of an array stand here; 1 otherwise. Tasks still to come count as one."""
    nodes: tuple[str, ...]
    """All nodes of the entry."""


def select(
    jobs: Iterable[Job], *, user: str | None = None, partition: str | None = None, state: str | None = None
) -> tuple[Job, ...]:
    """The jobs of a user, a partition, a state (its beginning is enough: `pend`); None: any."""
    return tuple(
        job
        for job in jobs
        if (user is None or job.user == user)
        and (partition is None or partition in job.partition.split(","))
        and (state is None or job.state.lower().startswith(state.lower()))
    )


def entries(jobs: Iterable[Job]) -> tuple[Entry, ...]:
    """The queue's lines in the order of the jobs, arrays folded."""
    found: dict[object, list[Job]] = {}
    for job in jobs:
        key = ("array", job.array, job.state, job.partition) if job.array is not None else ("job", job.id)
        found.setdefault(key, []).append(job)
    return tuple(
        Entry(_label(tasks), tasks[0], len(tasks), tuple(name for job in tasks for name in job.nodes))
        for tasks in found.values()
    )


def _label(tasks: Sequence[Job]) -> str:
    job = tasks[0]
    if job.het is not None:
        return f"{job.het}+{job.het_offset or 0}"
    if job.array is None:
        return str(job.id)
    numbers = [task.task or "?" for task in tasks]
    if len(numbers) == 1 and numbers[0].isdecimal():
        return f"{job.array}_{numbers[0]}"
    if all(number.isdecimal() for number in numbers):
        return f"{job.array}_[{fold(numbers).strip('[]')}]"
    return f"{job.array}_[{','.join(numbers)}]"


def places(picture: Picture, entry: Entry) -> dict[str, int]:
    """How many of the entry's nodes are in which block or under which leaf switch; {} where there are none."""
    counts: Counter[str] = Counter()
    for view in picture.partitions:
        if view.name == entry.job.partition and view.topology.kind != "flat":
            mine = set(entry.nodes)
            counts.update({row.name: len(mine.intersection(row.nodes)) for row in view.rows if not row.loose})
    return {name: count for name, count in counts.items() if count}


def jobs_json(picture: Picture, listed: Sequence[Entry]) -> dict[str, Any]:
    """The document of `jobs --json` (schema hyp-submit/jobs/1)."""
    return {
        "schema": JOBS_SCHEMA,
        "cluster": picture.cluster.name,
        "taken_at": stamp(picture.cluster.taken_at),
        "jobs": [
            {
                "label": entry.label,
                "id": entry.job.id,
                "array": entry.job.array,
                "het": entry.job.het,
                "tasks": entry.tasks,
                "user": entry.job.user,
                "name": entry.job.name,
                "partition": entry.job.partition,
                "state": entry.job.state,
                "node_count": entry.job.node_count,
                "nodes": list(entry.nodes),
                "segment_size": entry.job.segment_size,
                "places": places(picture, entry),
                "priority": entry.job.priority,
                "start_time": stamp(entry.job.start_time),
                "end_time": stamp(entry.job.end_time),
                "reason": entry.job.reason,
            }
            for entry in listed
        ],
    }


_STATE_TONES: Mapping[str, Tone] = {"RUNNING": "busy", "PENDING": "warn", "COMPLETED": "dim", "FAILED": "bad"}


_COLUMNS = (
    ("JOB", 24), ("USER", 12), ("NAME", 24), ("PARTITION", 12), ("STATE", 12), ("NODES", 9), ("SEG", 4),
    ("LEFT / WAITS FOR", 34), ("WHERE", 60),
)  # fmt: skip
"""The columns, each with the most characters that it takes."""
_NUMBERS = {"NODES", "SEG"}


def jobs(picture: Picture, listed: Sequence[Entry], now: datetime) -> Iterator[Spans]:
    """The rows of `jobs`: a heading, then a row an entry, each column as wide as it must be."""
    table = [tuple(printable(cell) for cell in _cells(picture, entry, now)) for entry in listed]
    columns = zip(*table, strict=True) if table else ((),) * len(_COLUMNS)
    widths = [min(most, max(map(len, (head, *cells)))) for (head, most), cells in zip(_COLUMNS, columns, strict=True)]
    yield tuple((cell, "dim") for cell in _fit([head for head, _ in _COLUMNS], widths))
    for row in table:
        yield tuple(
            (cell, _STATE_TONES.get(row[place], "") if head == "STATE" else "")
            for place, (cell, (head, _)) in enumerate(zip(_fit(row, widths), _COLUMNS, strict=True))
        )


def _cells(picture: Picture, entry: Entry, now: datetime) -> Iterator[str]:
    job = entry.job
    yield from (entry.label, job.user, job.name, job.partition, job.state)
    yield str(job.node_count) if entry.tasks == 1 else f"{entry.tasks}x{job.node_count}"
    yield str(job.segment_size or "")
    yield outlook(job, now)
    yield ", ".join(f"{name} {count}" for name, count in places(picture, entry).items())


def _fit(cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """Each cell cut or filled to its column, numbers to the right, with the gap behind it."""
    for cell, width, (head, _) in zip(cells, widths, _COLUMNS, strict=True):
        cut = cell[:width]
        yield f"{cut.rjust(width) if head in _NUMBERS else cut.ljust(width)}  "
