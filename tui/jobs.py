"""The queue: a row a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from hyp_submit.model import Job
from hyp_submit.report import printable
from hyp_submit.views import Picture, Queue, outlook

from .lines import LineView
from .paint import Pen, Span
from .table import GAP, Column, fit_columns

_INDENT = 2
"""Cells before the first column: the cursor's mark stands there."""


def state_ink(job: Job) -> str:
    """The ink of a job's state."""
    if job.holds_nodes:
        return "busy" if job.state == "RUNNING" else "claimed"
    return "claimed" if job.state == "PENDING" else "absent"


def _columns(longest: Mapping[str, int]) -> tuple[Column, ...]:
    """Columns as wide as what is in them, within bounds."""

    def widest(field: str, least: int, most: int) -> int:
        return max(least, min(most, longest.get(field, 0)))

    return (
        Column("JOB", widest("id", 5, 10), "right", keep=9),
        Column("USER", widest("user", 5, 10), keep=3),
        Column("NAME", 10, keep=7, most=widest("name", 10, 40)),
        Column("PARTITION", widest("partition", 9, 12), keep=2),
        Column("STATE", widest("state", 7, 10), keep=5),
        Column("NODES", 5, "right", keep=4),
        Column("SEG", 3, "right", keep=1),
        Column("LEFT / WAITS FOR", 16, keep=6, most=60),
    )


class QueueView(LineView):
    """The jobs of one partition or of all, those that run first. The cursor stays on its job, whatever moves."""

    def __init__(self, pen: Pen) -> None:
        super().__init__(pen, id="queue")
        self._jobs: Sequence[Job] = ()
        self._columns: tuple[Column, ...] = ()
        self._now = datetime.now(UTC)
        self._row = 0

    def show(self, picture: Picture, partition: str | None, now: datetime) -> None:
        """Show the jobs of a partition, or of all (None)."""
        cursor = self.job
        self._now = now
        queue = picture.queue.get(partition, Queue())
        self._jobs = queue.jobs
        self._columns = _columns(queue.longest)
        if partition is not None and not queue.jobs and (others := len(picture.queue[None].jobs)):
            self.notice = f"No job in {printable(partition)}; {others} in other partitions (p)."
        else:
            self.notice = "The queue is empty."
        if cursor is not None:
            same = next((row for row, job in enumerate(self._jobs) if job.id == cursor.id), self._row)
            self._row = max(0, min(same, len(self._jobs) - 1))
        self.rows_changed()

    @property
    def job(self) -> Job | None:
        """The job under the cursor."""
        return self._jobs[self._row] if self._row < len(self._jobs) else None

    @property
    def row_count(self) -> int:
        """A row a job."""
        return len(self._jobs)

    @property
    def cursor_row(self) -> int | None:
        """The row of the cursor's job."""
        return self._row if self._jobs else None

    def move(self, rows: int) -> None:
        """Move the cursor by rows."""
        self._row = max(0, min(self._row + rows, len(self._jobs) - 1))
        self.show_cursor()

    def move_to_end(self, *, last: bool) -> None:
        """Move the cursor to the first or last job."""
        self.move(len(self._jobs) if last else -len(self._jobs))

    def click(self, row: int, x: int) -> None:  # noqa: ARG002  a job is the whole row
        """Put the cursor on a row."""
        self.move(row - self._row)

    def ground(self, row: int) -> str | None:
        """The cursor's row stands out."""
        return "cursor" if row == self._row else None

    def draw(self, row: int, width: int) -> list[Span]:
        """One job."""
        job = self._jobs[row]
        text = {
            "JOB": (str(job.id), "strong"),
            "USER": (job.user, "plain"),
            "NAME": (job.name, "plain"),
            "PARTITION": (job.partition, "plain"),
            "STATE": (job.state, state_ink(job)),
            "NODES": (str(job.node_count), "plain"),
            "SEG": ("" if job.segment_size is None else str(job.segment_size), "plain"),
            "LEFT / WAITS FOR": (outlook(job, self._now), "plain" if job.holds_nodes else "faint"),
        }
        spans: list[Span] = [(">" if row == self._row else " ", "strong"), (" " * (_INDENT - 1), "plain")]
        for column in fit_columns(self._columns, width - _INDENT):
            shown, ink = text[column.name]
            spans += [(self.pen.fit(shown, column.width, column.align), ink), (" " * GAP, "plain")]
        return spans

    def heading(self, width: int) -> list[Span]:
        """The names of the columns."""
        spans: list[Span] = [(" " * _INDENT, "plain")]
        for column in fit_columns(self._columns, width - _INDENT):
            spans += [(self.pen.fit(column.name, column.width, column.align), "faint"), (" " * GAP, "plain")]
        return spans
