"""The app: what is on the screen, and what the keys do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import ClassVar

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.events import Resize
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.timer import Timer
from textual.widgets import ContentSwitcher, Footer, Static

from hyp_submit.errors import HypSubmitError, Transient
from hyp_submit.report import duration
from hyp_submit.views import Picture, Queue

from .blocks import BlocksView
from .details import Line, clock, job_lines, node_lines
from .help import HelpScreen
from .jobs import QueueView
from .lines import AsciiScrollBar, LineView
from .messages import ReadDone, ReadFailed
from .paint import Lines, Pen, Span, fill, spread
from .reading import Reader, Source

SMALLEST = (60, 12)
"""Columns and lines below which nothing would be told apart."""
DETAIL_LINES = 3
LEGEND_LINES = 3
"""At most; in general it is one."""
SLOW = timedelta(seconds=2)
"""A read that takes longer is mentioned in the header."""
STALE = 3
"""Data older than this many refreshes are marked."""
VIEWS = {"blocks": "Blocks", "queue": "Queue"}
"""The views in the order of their keys, 1 first."""


def run(source: Source, *, ascii_only: bool = False) -> None:
    """Show the cluster until the user quits.

    Raises what the first read raised where another try cannot help: a snapshot that is none, a host without Slurm.
    """
    app = HypSubmitApp(source, ascii_only=ascii_only)
    error = app.run()
    if error is not None:
        raise error


class HypSubmitApp(App[HypSubmitError]):
    """The cluster's blocks and its queue."""

    TITLE = "hyp-submit"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "view('blocks')", "Blocks", id="blocks", show=False, tooltip="Blocks, switches and their nodes"),
        Binding("2", "view('queue')", "Queue", id="queue", show=False, tooltip="Running and waiting jobs"),
        Binding("p", "partition(1)", "Partition", id="partition", tooltip="The next partition, after the last one all"),
        Binding("P", "partition(-1)", "Previous partition", id="partition-back", show=False, tooltip="The one before"),
        Binding("r,f5", "refresh", "Refresh", id="refresh", tooltip="Read the cluster now"),
        Binding("question_mark,f1", "help", "Help", id="help", tooltip="Keys, and what the cells mean"),
        Binding("q", "quit", "Quit", id="quit", tooltip="Leave"),
        Binding("ctrl+c", "quit", "Quit", id="interrupt", show=False, priority=True, tooltip="Leave"),
    ]

    def __init__(self, source: Source, *, ascii_only: bool = False) -> None:
        super().__init__()
        if "TEXTUAL_ANIMATIONS" not in os.environ:
            # Over ssh an animation is lag, and the data do not move.
            self.animation_level = "none"
        self.pen = Pen(ascii_only=ascii_only)
        self.set_class(ascii_only, "-ascii")
        # Textual has the renderer of scroll bars for the whole process.
        ScrollBar.renderer = AsciiScrollBar if ascii_only else ScrollBarRender
        self.source = source
        self.reader = Reader(source, self.post_message)
        self.picture: Picture | None = None
        self.partition: str | None = None
        """The partition that the views are narrowed to; None: all."""
        self.failure: tuple[str, datetime] | None = None
        """Why the last read failed, and since when all have."""
        self._next_read: Timer | None = None

    def compose(self) -> ComposeResult:
        """Header, tabs, the views, the thing under the cursor, keys."""
        yield Lines(self.pen, id="header")
        yield Lines(self.pen, id="tabs")
        yield Lines(self.pen, id="banner")
        with ContentSwitcher(initial="blocks", id="views"):
            yield BlocksView(self.pen)
            yield QueueView(self.pen)
        yield Lines(self.pen, id="legend")
        yield Lines(self.pen, id="detail", height=DETAIL_LINES)
        yield Footer()
        yield Static(f"Resize to at least {SMALLEST[0]}x{SMALLEST[1]}", id="small", markup=False)

    def on_mount(self) -> None:
        """Begin to read."""
        for view in self.query(LineView):
            view.notice = "Loading the cluster" + ("..." if self.pen.ascii_only else "…")
        self.current.focus()
        self.set_interval(1, self._show_header)
        self.reader.start()
        self._show_header()
        self._show_tabs()

    def on_resize(self, event: Resize) -> None:
        """Say so where there is too little room; break header and tabs anew."""
        small = event.size.width < SMALLEST[0] or event.size.height < SMALLEST[1]
        self.default_screen.set_class(small, "-small")
        for show in (self._show_header, self._show_tabs, self._show_legend):
            self.call_after_refresh(show)

    # Reading.

    @on(ReadDone)
    def _read_done(self, message: ReadDone) -> None:
        self.failure = None
        self.picture = message.picture
        if self.partition not in {None, *(view.name for view in self.picture.partitions)}:
            self.partition = None
        self._read_again(message.took, failed=False)
        self._show_picture()

    @on(ReadFailed)
    def _read_failed(self, message: ReadFailed) -> None:
        error = message.error
        if self.picture is None and isinstance(error, HypSubmitError) and not isinstance(error, Transient):
            self.exit(error)
            return
        text = str(error) if isinstance(error, HypSubmitError) else f"{type(error).__name__}: {error}"
        self.failure = (self.pen.clean(text), self.failure[1] if self.failure else datetime.now(UTC))
        if self.picture is None:
            for view in self.query(LineView):
                view.notice = "The cluster could not be read yet."
                view.rows_changed()
        self._read_again(message.took, failed=True)
        self._show_header()

    def _read_again(self, took: timedelta, *, failed: bool) -> None:
        """Set the clock for the next read."""
        self.reader.finished()
        if self._next_read is not None:
            self._next_read.stop()
            self._next_read = None
        if (pause := self.reader.pause(took, failed=failed)) is not None:
            self._next_read = self.set_timer(pause.total_seconds(), self.reader.start)

    # Showing.

    @property
    def now(self) -> datetime:
        """The time that the cluster is in: that of a snapshot has stopped."""
        if self.picture is not None and not self.source.live:
            return self.picture.cluster.taken_at
        return datetime.now(UTC)

    @property
    def current(self) -> LineView:
        """The view on the screen."""
        return self.query_one(f"#{self.query_one(ContentSwitcher).current}", LineView)

    def _show_picture(self) -> None:
        if self.picture is not None:
            self.query_one(BlocksView).show(self.picture, self.partition)
            self.query_one(QueueView).show(self.picture, self.partition, self.now)
        self._show_legend()
        self._show_tabs()
        self._show_header()

    def _show_header(self) -> None:
        header = self.query_one("#header", Lines)
        left: list[Span] = [("hyp-submit", "faint")]
        if self.picture is not None:
            cluster = self.picture.cluster
            left = [(self.pen.clean(cluster.name), "strong")]
            if cluster.slurm_version:
                left += [(f"  Slurm {self.pen.clean(cluster.slurm_version)}", "faint")]
        right = [*self._age(), ("  ", "plain"), (f" {self.source.badge} ", self.source.badge.lower())]
        header.show(spread(left, right, header.content_size.width, self.pen.ellipsis))
        banner = self.query_one("#banner", Lines)
        banner.set_class(self.failure is not None, "-on")
        if self.failure is not None:
            what, since = self.failure
            state = "stale" if self.picture else "failing"
            banner.show([(f"{state} since {clock(since, datetime.now(UTC))}", "alert"), (f"  {what}", "plain")])

    def _age(self) -> list[Span]:
        """How old the data are, and whether new ones are long in coming."""
        spans: list[Span] = []
        if (busy := self.reader.busy_for) is not None and busy > SLOW:
            spans += [(f"reading for {duration(busy)}  ", "claimed")]
        if self.picture is None:
            return spans
        taken = self.picture.cluster.taken_at
        if not self.source.live:
            return [*spans, (f"as of {taken.astimezone():%Y-%m-%d %H:%M %Z}", "faint")]
        age = self.now - taken
        stale = self.source.refresh is not None and age > self.source.refresh * STALE
        return [*spans, (f"{duration(age)} old", "alert" if stale else "faint")]

    def _show_tabs(self) -> None:
        tabs = self.query_one("#tabs", Lines)
        shown = self.query_one(ContentSwitcher).current
        spans: list[Span] = []
        for key, (name, title) in enumerate(VIEWS.items(), 1):
            spans += [(f" {key} {title} ", "picked" if name == shown else "plain"), (" ", "plain")]
        if self.picture is not None:
            spans += [("  Partition  ", "faint"), *self._partitions(self.picture)]
        tabs.show(spans)

    def _partitions(self, picture: Picture) -> Iterable[Span]:
        """The partitions to pick from, from the one before the picked one on where they are many."""
        names = [None, *(view.name for view in picture.partitions)]
        place = names.index(self.partition)
        for name in names[max(0, place - 1) :] if place > 1 else names:
            yield "all" if name is None else self.pen.clean(name), "chosen" if name == self.partition else "plain"
            yield "  ", "plain"

    def _show_legend(self) -> None:
        """What there is, counted: nodes by condition, which explains their glyphs, or jobs by state."""
        if self.picture is None:
            return
        entries: list[Line] = []
        if self.current.id == "queue":
            for state, count in self.picture.queue.get(self.partition, Queue()).states.items():
                entries.append([(f"{count} {self.pen.clean(state.lower())}", "faint")])
        else:
            for one, count in self.picture.counts.get(self.partition, {}).items():
                entries.append([(one.glyph, one.hue), (f" {count} {one.word}", "faint")])
        legend = self.query_one("#legend", Lines)
        lines = fill(entries, legend.content_size.width)[:LEGEND_LINES]
        legend.styles.height = max(1, len(lines))
        legend.show(*lines)

    @on(LineView.Moved)
    def _show_detail(self) -> None:
        lines: Iterable[Line] = ()
        if self.picture is not None:
            view = self.current
            if isinstance(view, BlocksView) and (place := view.place):
                lines = node_lines(self.picture, *place, self.now, self.pen)
            elif isinstance(view, QueueView) and view.job is not None:
                lines = job_lines(self.picture, view.job, self.now, self.pen)
        self.query_one("#detail", Lines).show(*lines)

    # Keys.

    def action_view(self, name: str) -> None:
        """Show a view."""
        self.query_one(ContentSwitcher).current = name
        # At once, unlike `focus()`: the next key may be here already, and is for this view.
        self.default_screen.set_focus(self.current)
        self._show_tabs()
        self._show_legend()
        self._show_detail()

    def action_next_view(self) -> None:
        """Show the next view."""
        names = list(VIEWS)
        self.action_view(names[(names.index(self.current.id or names[0]) + 1) % len(names)])

    def action_partition(self, step: int) -> None:
        """Narrow the views to another partition; before the first and after the last comes "all"."""
        if self.picture is not None:
            names = [None, *(view.name for view in self.picture.partitions)]
            self.partition = names[(names.index(self.partition) + step) % len(names)]
            self._show_picture()

    def action_refresh(self) -> None:
        """Read now, unless that is going on."""
        self.reader.start()
        self._show_header()

    def action_help(self) -> None:
        """Show the help."""
        self.push_screen(HelpScreen(_HELP, self.pen))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything that a key does, for the command palette."""
        yield SystemCommand("Blocks", "Blocks, switches and their nodes (1)", lambda: self.action_view("blocks"))
        yield SystemCommand("Queue", "Running and waiting jobs (2)", lambda: self.action_view("queue"))
        yield SystemCommand(
            "Next partition", "Narrow the views to the next partition (p)", lambda: self.action_partition(1)
        )
        yield SystemCommand("Previous partition", "The partition before (P)", lambda: self.action_partition(-1))
        yield SystemCommand("Refresh", "Read the cluster now (r)", self.action_refresh)
        yield SystemCommand("Help", "Keys, and what the cells mean (?)", self.action_help)
        yield from super().get_system_commands(screen)


_HELP: Sequence[tuple[str, str]] = (
    ("1 2 tab", "views"),
    ("p P", "partitions"),
    ("arrows hjkl", "move"),
    ("g G", "first, last"),
    ("pgup pgdn", "by screenfuls"),
    ("r", "read now"),
    ("ctrl+p", "all commands"),
    ("?", "this help"),
    ("q ctrl+c", "quit"),
)
