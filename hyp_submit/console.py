"""The terminal: stdout is data, stderr is narration, and a hold shows itself live where somebody watches."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from hyp_submit import gate, report
from hyp_submit.model import Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from hyp_submit.flow import Look

_TONES: Mapping[report.Tone, str] = {
    "": "",
    "good": "green",
    "warn": "yellow",
    "bad": "red",
    "dim": "dim",
    "busy": "blue",
    "odd": "magenta",
    "title": "bold",
}
PLAIN_REPEAT = timedelta(minutes=5)
"""Where nobody watches, an unchanged wait is said again after this long."""


def put(text: str) -> None:
    """A line of data on stdout, flushed so that it stands before narration that follows. A closed pipe is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes stdout once more at exit; without this that would be a traceback.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def put_json(document: Any) -> None:
    """A JSON document on stdout."""
    put(json.dumps(document, indent=2, ensure_ascii=False))


def width(*, stderr: bool = False, default: int = 100) -> int:
    """Columns to write for on that stream: COLUMNS, its terminal's, or `default` where it is none; never under 40."""
    asked = os.environ.get("COLUMNS", "")
    if asked.isdecimal() and int(asked):
        return max(40, int(asked))
    try:
        return max(40, os.get_terminal_size((sys.stderr if stderr else sys.stdout).fileno()).columns)
    except (OSError, ValueError):
        return default


def _console(*, stderr: bool) -> Console:
    from rich.console import Console  # noqa: PLC0415  only output with colours needs it

    return Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, width=width(stderr=stderr), soft_wrap=True
    )


def show(lines: Iterable[report.Line], *, stderr: bool = False) -> None:
    """Lines for a person; on stderr where stdout has the data."""
    from rich.text import Text  # noqa: PLC0415

    console = _console(stderr=stderr)
    for line in lines:
        for row in report.plain([line], width(stderr=stderr)):
            text = Text(row, style=_TONES[line.tone] if line.table or line.tone in {"warn", "bad"} else "")
            if line.label and row.startswith(line.label):
                text.stylize(f"bold {_TONES[line.tone]}", 0, len(line.label))
            console.print(text, no_wrap=True, overflow="ignore", crop=False)


def rows(table: Iterable[report.Spans]) -> None:
    """Rows of a table on stdout, cut at the width of the terminal; whole where there is none."""
    from rich.text import Text  # noqa: PLC0415

    console = _console(stderr=False)
    for spans in table:
        text = Text.assemble(*((piece, _TONES[tone]) for piece, tone in spans), no_wrap=True)
        text.rstrip()
        if sys.stdout.isatty():
            text.truncate(width(), overflow="ellipsis")
        console.print(text, no_wrap=True, overflow="ignore", crop=False)


def say(label: str, text: str, tone: report.Tone = "") -> None:
    """One line of narration."""
    show([report.Line(label, text, tone)], stderr=True)


def log(label: str, text: str, tone: report.Tone = "") -> None:
    """One line of narration, left to the terminal to fold, so that it stays one line in a log."""
    from rich.text import Text  # noqa: PLC0415

    head = (f"{label:<12}", f"bold {_TONES[tone]}".strip())
    _console(stderr=True).print(Text.assemble(head, report.printable(text)), soft_wrap=True)


def fail(message: str) -> None:
    """The one line of an error."""
    log("error", message, "bad")


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
                console=_console(stderr=True),
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
