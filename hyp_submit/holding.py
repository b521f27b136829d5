"""How a hold shows itself on stderr: live where somebody watches, a line for each change elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Self

from hyp_submit import gate, report
from hyp_submit.console import log, say, stream, width
from hyp_submit.model import Event

if TYPE_CHECKING:
    from rich.live import Live
    from rich.text import Text

    from hyp_submit.flow import Look

PLAIN_REPEAT = timedelta(minutes=5)
"""Where nobody watches, an unchanged wait is said again after this long."""


class HoldDisplay:
    """Shows the looks of a hold on stderr: a live picture on a terminal, a line for each change elsewhere."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._picture = _Picture([], timedelta(), None)
        self._plan = ""
        self._last = ""
        self._said_at = timedelta()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the live picture away, so that other output starts on a clean line."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str) -> None:
        """A line of narration that stays, above the live picture."""
        self.close()
        say("note", text, "warn")

    def show(self, look: Look) -> None:
        """Show one look, and the plan where it is a new one."""
        if look.plan is not None and (planned := report.summary(look.plan)) != self._plan:
            self.close()
            say("plan", planned, "good")
            self._plan = planned
        if isinstance(look.decision, gate.Ready):
            self.close()
            say("ready", _ready(look), "good")
            return
        lines = list(_hold_lines(look))
        if sys.stderr.isatty():
            self._paint(lines, look)
            return
        steady = " | ".join(line.text for line in lines)
        if steady != self._last or look.waited - self._said_at >= PLAIN_REPEAT:
            self._last, self._said_at = steady, look.waited
            log("holding", f"{_clock(look.waited)}  {steady}")

    def _paint(self, lines: list[report.Line], look: Look) -> None:
        from rich.live import Live  # noqa: PLC0415

        self._picture = _Picture(lines, look.waited, look.next_in)
        if self._live is None:
            self._live = Live(
                get_renderable=self._text,
                console=stream(stderr=True),
                refresh_per_second=2,
                transient=True,
            )
            self._live.start()
        self._live.refresh()

    def _text(self) -> Text:
        return self._picture.text()


class _Picture:
    """What the last look found, with clocks that go on until the next one."""

    def __init__(self, lines: list[report.Line], waited: timedelta, next_in: timedelta | None) -> None:
        self._lines = lines
        self._waited = waited
        self._next_in = next_in
        self._made = monotonic()

    def text(self) -> Text:
        from rich.text import Text  # noqa: PLC0415

        passed = timedelta(seconds=monotonic() - self._made)
        tail = f"{_clock(self._waited + passed)}"
        if self._next_in is not None:
            tail += f" | next look in {max(0, round((self._next_in - passed).total_seconds()))} s"
        tail += " | Ctrl-C: nothing is submitted"
        rows = report.plain([*self._lines, report.Line("", tail)], width(stderr=True) - 1)
        return Text("\n".join(rows), no_wrap=True, overflow="ellipsis")


def _hold_lines(look: Look) -> Iterable[report.Line]:
    seen = look.seen
    if seen is None:
        yield report.Line("holding", f"this look failed, trying again: {look.trouble}", "warn")
        return
    parts = [report.group_text(group) for group in seen.groups or ()]
    if parts:
        yield report.Line("holding", f"{seen.partition}: {'; '.join(parts)}")
    slurm = f"Slurm: {seen.registered} nodes registered, {seen.usable} usable of the {seen.nodes} that the job needs"
    yield report.Line("" if parts else "holding", slurm if parts else f"{seen.partition}: {slurm}")
    if isinstance(look.decision, gate.Wait):
        yield report.Line("", f"waits for: {look.decision.why[0]}")
    if look.events:
        yield report.Line("", f"last event: {_event(look.events[0])}")


def _ready(look: Look) -> str:
    seen = look.seen
    if seen is None:
        return ""
    groups = "; ".join(f"{group.name} {group.status}, {group.current} of {group.target}" for group in seen.groups or ())
    fits = "the plan fits now" if seen.fit and seen.fit.now else "the plan fits once jobs have ended"
    return f"{groups + '; ' if groups else ''}{seen.usable} usable nodes in Slurm, {fits}"


def _event(event: Event) -> str:
    return f"{event.text}{': ' + event.reason if event.reason else ''}"


def _clock(span: timedelta) -> str:
    """`00:14:09`."""
    seconds = int(span.total_seconds())
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
