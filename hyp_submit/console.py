"""The terminal: stdout is data, stderr is narration."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from hyp_submit import report

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


def put(text: str) -> None:
    """A line of data on stdout, flushed so that it stands before narration that follows. A closed pipe is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        abandon_stdout()


def abandon_stdout() -> None:
    """Give up what could not be written: Python flushes stdout once more at exit, and would fail once more."""
    with suppress(OSError, ValueError):
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


def stream(*, stderr: bool) -> Console:
    """A rich console on stdout or stderr, for text that is never markup."""
    from rich.console import Console  # noqa: PLC0415  only output with colours needs it

    class Quiet(Console):
        def on_broken_pipe(self) -> None:
            """A reader that has seen enough (`| head`) is no error."""
            abandon_stdout()
            raise SystemExit(0)

    columns = width(stderr=stderr)
    return Quiet(stderr=stderr, highlight=False, markup=False, emoji=False, width=columns, soft_wrap=True)


def show(lines: Iterable[report.Line], *, stderr: bool = False) -> None:
    """Lines for a person; on stderr where stdout has the data."""
    from rich.text import Text  # noqa: PLC0415

    from hyp_submit import report  # noqa: PLC0415  the model with it, which --help has no use for

    console = stream(stderr=stderr)
    for line in lines:
        for row in report.plain([line], width(stderr=stderr)):
            text = Text(row, style=_TONES[line.tone] if line.table or line.tone in {"warn", "bad"} else "")
            if line.label and row.startswith(line.label):
                text.stylize(f"bold {_TONES[line.tone]}", 0, len(line.label))
            console.print(text, no_wrap=True, overflow="ignore", crop=False)


def rows(table: Iterable[report.Spans]) -> None:
    """Rows of a table on stdout, cut at the width of the terminal; whole where there is none."""
    from rich.text import Text  # noqa: PLC0415

    console = stream(stderr=False)
    for spans in table:
        text = Text.assemble(*((piece, _TONES[tone]) for piece, tone in spans), no_wrap=True)
        text.rstrip()
        if sys.stdout.isatty():
            text.truncate(width(), overflow="ellipsis")
        console.print(text, no_wrap=True, overflow="ignore", crop=False)


def say(label: str, text: str, tone: report.Tone = "") -> None:
    """One line of narration."""
    from hyp_submit import report  # noqa: PLC0415

    show([report.Line(label, text, tone)], stderr=True)


def log(label: str, text: str, tone: report.Tone = "") -> None:
    """One line of narration, left to the terminal to fold, so that it stays one line in a log."""
    from rich.text import Text  # noqa: PLC0415

    from hyp_submit import report  # noqa: PLC0415

    head = (f"{label:<12}", f"bold {_TONES[tone]}".strip())
    stream(stderr=True).print(Text.assemble(head, report.printable(text)), soft_wrap=True)


def fail(message: str) -> None:
    """The one line of an error."""
    log("error", message, "bad")
