"""The thing under the cursor, in up to three lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from hyp_submit.model import Job
from hyp_submit.views import Condition, Picture, outlook

from .jobs import state_ink
from .paint import Pen, Span

Line = list[Span]


def clock(moment: datetime, now: datetime) -> str:
    """A time of day where the reader is, `15:10`; with its date where that is not today's."""
    local = moment.astimezone()
    return f"{local:%H:%M}" if local.date() == now.astimezone().date() else f"{local:%d %b %H:%M}"


def node_lines(picture: Picture, partition: str, name: str, now: datetime, pen: Pen) -> Iterator[Line]:
    """A node: what it is and where, what runs on it, what is wrong with it."""
    node = picture.cluster.node.get(name)
    seen = picture.conditions.get(name, Condition.UNKNOWN)
    line: Line = [(pen.clean(name), "strong"), ("  ", "plain"), (f"{seen.glyph} {seen.word}", seen.hue)]
    place = picture.place_of(partition, name)
    line += [(f"  in {pen.clean(place or partition)}", "plain")]
    if node is None:
        yield [*line, ("  Slurm's node table does not have it", "faint")]
        return
    if node.gpus:
        # Slurm tells how many are in use only where its accounting counts them (AccountingStorageTRES).
        known = node.gpus_allocated or not picture.tenants.get(name)
        use = f"{node.gpus_allocated}/{node.gpus} GPUs in use" if known else f"{node.gpus} GPUs"
        line += [(f"{pen.dot}{use}", "plain")]
    yield [*line, (f"{pen.dot}{pen.clean(node.state)}", "faint")]
    if jobs := picture.tenants.get(name, ()):
        more = f"{pen.dot}and {len(jobs) - 1} more" if len(jobs) > 1 else ""
        yield [*_job(jobs[0], pen), (f"{pen.dot}{_span(jobs[0], now)}{more}", "plain")]
    if node.reason:
        yield [("reason ", "faint"), (pen.clean(node.reason), seen.hue)]


def job_lines(picture: Picture, job: Job, now: datetime, pen: Pen) -> Iterator[Line]:
    """A job: whose it is, what it has or asks for, how long it still runs or why it waits."""
    yield [
        *_job(job, pen),
        (f"  in {pen.clean(job.partition)}", "plain"),
        (f"  {pen.clean(job.state)}", state_ink(job)),
    ]
    size = f"{job.node_count} node{'' if job.node_count == 1 else 's'}"
    if job.segment_size is not None:
        size += f" in segments of {job.segment_size}"
    if job.holds_nodes:
        yield [(f"{size}: {pen.clean(picture.places(job))}", "plain")]
        yield [(_span(job, now), "plain")]
    else:
        priority = "" if job.priority is None else f"{pen.dot}priority {job.priority}"
        yield [(f"{size}{priority}", "plain")]
        if why := outlook(job, now):
            yield [("waits for ", "faint"), (pen.clean(why), "claimed")]


def _job(job: Job, pen: Pen) -> Line:
    return [(str(job.id), "strong"), (f"  {pen.clean(job.user)}", "plain"), (f"  {pen.clean(job.name)}", "plain")]


def _span(job: Job, now: datetime) -> str:
    end = "" if job.end_time is None else f", ends {clock(job.end_time, now)}"
    return f"{outlook(job, now)}{end}"
