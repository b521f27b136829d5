"""The terminal UI, driven by keys: what stands on the screen is compared with the cluster behind it."""

import ast
import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from textual.events import Key
from textual.pilot import Pilot

from hyp_submit import files, slurm, tui
from hyp_submit.decode import BASES
from hyp_submit.errors import HypSubmitError, Transient, Unreadable, UsageError
from hyp_submit.model import Block, Cluster, Job, Node, Partition, Switch, Topology
from hyp_submit.report import printable
from hyp_submit.tui import Source
from hyp_submit.tui.app import HypSubmitApp
from hyp_submit.tui.blocks import BlocksView
from hyp_submit.tui.jobs import QueueView
from hyp_submit.tui.lines import LineView
from hyp_submit.tui.paint import Lines
from hyp_submit.tui.reading import EASE, Reader
from hyp_submit.tui.table import GAP, Column, fit_columns
from hyp_submit.views import SEVERITY, Condition, Trouble, condition, outlook, picture

SIZES = [(80, 24), (140, 45)]
WATCHDOG = 60.0
"""Seconds after which a hang is a hang, and nothing is measured by it."""
NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)

Drive = Callable[[HypSubmitApp, "Pilot[Any]"], Awaitable[None]]


# --- how the app is driven -----------------------------------------------------------------------------------------


def drive(source: Source, do: Drive, size: tuple[int, int] = (80, 24), *, ascii_only: bool = False) -> HypSubmitApp:
    """Run the app without a terminal and do something with it."""
    app = HypSubmitApp(source, ascii_only=ascii_only)

    async def session() -> None:
        async with app.run_test(size=size) as pilot:
            await do(app, pilot)

    asyncio.run(asyncio.wait_for(session(), WATCHDOG))
    return app


async def until(pilot: Pilot[Any], holds: Callable[[], object]) -> None:
    """Let the app go on until something holds."""
    while not holds():
        await pilot.pause(0.01)
    await pilot.pause()


def screen(app: HypSubmitApp) -> list[str]:
    """The screen as lines of text."""
    width, height = app.size
    rows = [[" "] * width for _ in range(height)]
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        rows[y] = list(strip.text)
    return ["".join(row).rstrip() for row in rows]


def text(app: HypSubmitApp) -> str:
    """The screen as one text."""
    return "\n".join(screen(app))


def line_of(app: HypSubmitApp, word: str) -> str:
    """The first line under header and tabs that has a word in it."""
    return next(line for line in screen(app)[2:] if word in line.split())


def demo() -> Source:
    """The bundled cluster."""
    return Source("DEMO", files.demo)


def showing(cluster: Cluster) -> Source:
    """A snapshot of a cluster."""
    return Source("SNAPSHOT", lambda: cluster)


def cluster_of(conditions: Sequence[Node], jobs: Sequence[Job] = ()) -> Cluster:
    """One partition `p` with one block of these nodes."""
    names = tuple(node.name for node in conditions)
    return Cluster(
        "c",
        NOW,
        nodes=tuple(conditions),
        partitions=(Partition("p", topology="t", nodes=names),),
        topologies=(Topology("t", "block", (len(names),), (Block("b", names),)),),
        jobs=tuple(jobs),
    )


async def loaded(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
    """Wait for the first data."""
    await until(pilot, lambda: app.picture)


# --- blocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_a_row_has_a_cell_for_each_node_of_its_block(size: tuple[int, int]) -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        cluster = files.demo()
        topology = cluster.topology_of(cluster.partition["gb200"])
        for block in topology.blocks:
            nodes = [cluster.node[name] for name in sorted(block.nodes, key=cluster.position.__getitem__)]
            name, healthy, free, cells, *_ = line_of(app, block.name).split()
            assert (name, cells) == (block.name, "".join(condition(node).glyph for node in nodes))
            assert healthy == f"{sum(node.healthy for node in nodes)}/{len(nodes)}"
            assert free == str(sum(node.free for node in nodes))
        assert "2 drained  EFA health chec" in line_of(app, "us-1")

    drive(demo(), look, size)


def test_a_tree_is_indented_under_its_switches_and_adds_them_up() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        lines = [line_of(app, name) for name in ("p5", "core", "spine-1", "leaf-2")]
        assert [len(line) - len(line.lstrip()) for line in lines] == [1, 3, 5, 7]
        assert [line.split()[1:3] for line in lines] == [["16/16", "14"], ["16/16", "14"], ["8/8", "6"], ["4/4", "2"]]
        assert lines[-1].split()[-1] == "##.."

    drive(demo(), look, (140, 45))


def test_cells_that_do_not_fit_go_on_in_the_next_line() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        await pilot.press("p", "p", "p")
        assert app.partition == "dev"
        glyphs = set("".join(one.glyph for one in Condition))
        cells = [word for line in screen(app) for word in line.split() if set(word) <= glyphs and len(word) > 20]
        cluster = files.demo()
        assert "".join(cells) == "".join(condition(node).glyph for node in cluster.nodes)

    drive(demo(), look)


def test_nodes_in_no_block_are_shown_and_not_counted_as_free() -> None:
    cluster = cluster_of([Node("n1", "IDLE"), Node("n2", "IDLE")])
    cluster = replace(cluster, topologies=(Topology("t", "block", (1,), (Block("b", ("n1",)),)),))

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        assert line_of(app, "p").split()[:3] == ["p", "2/2", "1"]
        assert line_of(app, "-").split() == ["in", "no", "block", "1/1", "-", "."]

    drive(showing(cluster), look)


@pytest.mark.parametrize("size", SIZES)
def test_the_detail_says_all_of_the_node_under_the_cursor(size: tuple[int, int]) -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        await pilot.press("right", "l", "right")
        assert "ip-10-1-0-84  D drained  in us-1" in text(app)
        assert "reason EFA health check failed [root@2026-11-30T13:12:40]" in text(app)
        await pilot.press("g", "down", "j")
        assert "ip-10-1-0-55  # allocated  in us-3 · 4/4 GPUs in use" in text(app)
        assert "812  alice  moe-72b · 1 h 10 min left, ends" in text(app)

    drive(demo(), look, size)


def test_the_cursor_steps_over_lines_without_nodes_and_stops_at_the_ends() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        view = app.query_one(BlocksView)
        await pilot.press("up")
        assert view.place == ("gb200", "ip-10-1-0-18")
        await pilot.press(*["down"] * 4)
        assert view.place == ("p5", "ip-10-1-16-31")
        await pilot.press("left")
        assert view.place == ("gb200", "ip-10-1-3-75")
        await pilot.press("G", "down", "end", *["right"] * 9)
        assert view.place == ("cpu", "ip-10-1-32-37")
        await pilot.press("g")
        assert view.place is not None
        assert view.place[0] == "gb200"
        await pilot.press(*["pagedown"] * 9)
        assert view.place[0] == "cpu"

    drive(demo(), look)


def test_the_mouse_puts_the_cursor_on_a_cell() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        row = next(y for y, line in enumerate(screen(app)) if "us-3" in line)
        column = screen(app)[row].index("#")
        view = app.query_one(BlocksView)
        await pilot.click(BlocksView, offset=(column + 1, row - view.region.y))
        assert view.place == ("gb200", "ip-10-1-0-96")

    drive(demo(), look)


# --- the queue -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_the_queue_has_running_jobs_first_then_waiting_ones_by_priority(size: tuple[int, int]) -> None:
    jobs = (
        Job(1, "u", "low", "p", "PENDING", node_count=2, priority=5, reason="Priority"),
        Job(2, "u", "high", "p", "PENDING", node_count=2, priority=50, reason="Resources"),
        Job(3, "u", "ended", "p", "COMPLETED"),
        Job(4, "u", "runs", "p", "RUNNING", ("n1",), 1, segment_size=1, end_time=NOW + timedelta(minutes=90)),
    )

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        await pilot.press("2")
        rows = [line.removeprefix(">").split() for line in screen(app)[3:7]]
        assert [row[0] for row in rows] == ["4", "2", "1", "3"]
        assert rows[0] == ["4", "u", "runs", "p", "RUNNING", "1", "1", "1", "h", "30", "min", "left"]
        assert rows[1] == ["2", "u", "high", "p", "PENDING", "2", "Resources"]
        assert "1 node in segments of 1: b 1" in text(app)

    drive(showing(cluster_of([Node("n1", "ALLOCATED")], jobs)), look, size)


def test_keys_switch_between_the_views() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        for key, shown in [("2", QueueView), ("1", BlocksView), ("tab", QueueView), ("tab", BlocksView)]:
            await pilot.press(key)
            assert isinstance(app.current, shown)
            assert app.focused is app.current
        await pilot.press("question_mark")
        assert "not responding" in text(app)
        await pilot.press("q")
        assert app.is_running
        assert "hyp-submit" not in text(app)
        assert len(app.screen_stack) == 1

    drive(demo(), look)


def test_a_key_right_after_a_switch_is_for_the_new_view() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        await pilot.press("2")
        for key in ("1", "down"):
            app.post_message(Key(key, None))
        await until(pilot, lambda: app.query_one(BlocksView).place == ("gb200", "ip-10-1-0-44"))
        assert app.query_one(QueueView).cursor_row == 0

    drive(demo(), look)


def test_every_action_is_in_the_palette() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        titles = {command.title for command in app.get_system_commands(app.screen)}
        assert {"Blocks", "Queue", "Next partition", "Previous partition", "Refresh", "Help", "Quit"} <= titles
        await pilot.press("ctrl+p", *"queue", "enter")
        await until(pilot, lambda: isinstance(app.current, QueueView))

    drive(demo(), look)


def test_a_partition_narrows_both_views_and_says_when_nothing_is_left() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        await pilot.press("P", "2")
        assert "No job in cpu; 3 in other partitions (p)." in text(app)
        await pilot.press("p")
        assert "dense-405b" in text(app)

    drive(demo(), look)


# --- text from outside ---------------------------------------------------------------------------------------------

HOSTILE = ["[bold red]boo[/]", "\x1b[2J\x1b[31mred", "a\nb\tc", "\u202egnp.exe", "[@click=app.quit]x[/]", "$(x)", "[/]"]


@pytest.mark.parametrize("name", HOSTILE)
def test_text_from_outside_is_shown_as_it_is_and_steers_nothing(name: str) -> None:
    job = Job(7, name, name, name, "RUNNING", ("n1",), 1)
    node = Node("n1", "DOWN", reason=name)
    cluster = replace(cluster_of([node], [job]), name=name, slurm_version=name)
    cluster = replace(
        cluster,
        partitions=(Partition(name, name, "t", ("n1",)),),
        topologies=(Topology("t", "block", (1,), (Block(name, ("n1",)),)),),
    )
    source = showing(cluster)

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        for key in "12":
            await pilot.press(key)
            assert printable(name) in text(app)
            assert not set("\x1b\n\t\u202e").intersection("".join(screen(app)))
            for line in app.screen._compositor.render_strips():
                assert not any(segment.style and segment.style.meta.get("@click") for segment in line)

    drive(source, look, (140, 45))


def test_a_failure_is_text_too() -> None:
    def read() -> Cluster:
        raise Transient("[bold red]\x1b[31m")

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: app.failure)
        assert "[bold red]\\u001b[31m" in text(app)

    drive(Source("LIVE", read), look)


# --- refresh -------------------------------------------------------------------------------------------------------


class Script:
    """A reader whose answers are handed to it one by one; it waits for each as long as it takes."""

    def __init__(self) -> None:
        self._answers: list[Cluster | Exception] = []
        self._more = threading.Condition()
        self.reads = 0

    def answer(self, answer: Cluster | Exception) -> None:
        with self._more:
            self._answers.append(answer)
            self._more.notify()

    def __call__(self) -> Cluster:
        with self._more:
            self.reads += 1
            self._more.wait_for(lambda: self._answers, WATCHDOG)
            answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def banner(app: HypSubmitApp) -> bool:
    """Whether the banner is on the screen."""
    return app.query_one("#banner", Lines).display


def test_a_failing_read_keeps_the_data_under_a_banner_that_goes_by_itself() -> None:
    reader = Script()
    cluster = replace(files.demo(), taken_at=datetime.now(UTC))

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        assert "Loading the cluster" in text(app)
        reader.answer(cluster)
        await loaded(app, pilot)
        assert not banner(app)

        for trouble in (Transient("slurmctld does not answer"), ZeroDivisionError("oh")):
            reader.answer(trouble)
            await pilot.press("r")
            await until(pilot, lambda: app.reader.busy_for is None)
            assert banner(app)
        since = app.failure and app.failure[1]
        assert "ZeroDivisionError: oh" in text(app)
        assert "stale since" in text(app)
        assert line_of(app, "us-3").split()[3].startswith("#########")

        reader.answer(Transient("still away"))
        await pilot.press("r")
        await until(pilot, lambda: app.failure and app.failure[0] == "still away")
        assert app.failure is not None
        assert app.failure[1] == since

        reader.answer(cluster)
        await pilot.press("r")
        await until(pilot, lambda: not banner(app))
        assert app.failure is None

    drive(Source("LIVE", reader), look)


def test_before_the_first_data_a_failure_says_so_and_is_no_empty_cluster() -> None:
    reader = Script()

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        reader.answer(Transient("slurmctld does not answer"))
        await until(pilot, lambda: app.failure)
        assert "The cluster could not be read yet." in text(app)
        assert "slurmctld does not answer" in text(app)
        reader.answer(Cluster("empty", NOW))
        await pilot.press("r")
        await loaded(app, pilot)
        assert "No partition has nodes." in text(app)
        await pilot.press("2")
        assert "The queue is empty." in text(app)

    drive(Source("LIVE", reader), look)


@pytest.mark.parametrize("error", [UsageError("no such file"), Unreadable("no Slurm on this host")])
def test_a_first_failure_that_no_other_try_can_mend_ends_the_app(error: HypSubmitError) -> None:
    def read() -> Cluster:
        raise error

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: app.return_value)

    assert drive(Source("SNAPSHOT", read), look).return_value is error


def test_it_reads_again_by_itself_and_not_while_a_read_goes_on() -> None:
    reader = Script()

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: reader.reads == 1)
        await pilot.press("r", "r", "r")
        assert reader.reads == 1
        reader.answer(files.demo())
        await until(pilot, lambda: reader.reads == 2)
        reader.answer(files.demo())

    drive(Source("LIVE", reader, timedelta(seconds=0)), look)


@pytest.mark.parametrize(
    ("refresh", "took", "failed", "pause"),
    [
        (30, 0.1, False, 30),
        (30, 3, False, 30),
        (30, 4, False, 4 * EASE),
        (30, 4, True, 30),
        (30, 40, True, 40),
        (0, 0, False, 1),
        (None, 1, False, None),
    ],
)
def test_slow_reads_are_made_less_often(
    refresh: float | None, took: float, pause: float | None, *, failed: bool
) -> None:
    source = Source("LIVE", files.demo, None if refresh is None else timedelta(seconds=refresh))
    wanted = None if pause is None else timedelta(seconds=pause)
    assert Reader(source, lambda _: None).pause(timedelta(seconds=took), failed=failed) == wanted


def test_cursor_and_scroll_stay_with_node_and_job_over_a_refresh() -> None:
    reader = Script()
    cluster = files.demo()
    jobs = tuple(Job(i, "u", f"job-{i}", "gb200", "PENDING", node_count=1, priority=i) for i in range(1, 200))

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        reader.answer(replace(cluster, jobs=jobs))
        await loaded(app, pilot)
        blocks, queue = app.query_one(BlocksView), app.query_one(QueueView)
        await pilot.press("down", "down", "right", "2", *["pagedown"] * 5)
        place, job, first = blocks.place, queue.job, app.picture
        assert job is not None

        gb200 = cluster.topologies[0]
        moved = replace(gb200, blocks=(gb200.blocks[2], gb200.blocks[0], gb200.blocks[1], gb200.blocks[3]))
        ahead = Job(500, "u", "new", "gb200", "PENDING", node_count=1, priority=900)
        reader.answer(replace(cluster, topologies=(moved, *cluster.topologies[1:]), jobs=(*jobs, ahead)))
        await pilot.press("r")
        await until(pilot, lambda: app.picture is not first)
        assert blocks.place == place == ("gb200", "ip-10-1-0-96")
        assert queue.job == job
        assert line_of(app, str(job.id)).startswith(">")

        reader.answer(replace(cluster, jobs=jobs[:3]))
        await pilot.press("r")
        await until(pilot, lambda: queue.row_count == 3)
        assert queue.job == jobs[0]
        reader.answer(replace(cluster, partitions=cluster.partitions[:1]))
        await pilot.press("r", "1")
        await until(pilot, lambda: blocks.place and blocks.place[0] == "dev")

    drive(Source("LIVE", reader), look)


def test_what_was_scrolled_to_stays_in_sight_over_a_refresh() -> None:
    reader = Script()
    jobs = tuple(Job(i, "u", f"job-{i}", "p", "PENDING", node_count=1, priority=-i) for i in range(1, 200))
    cluster = cluster_of([Node("n1", "IDLE")], jobs)
    ahead = Job(500, "u", "new", "p", "PENDING", node_count=1, priority=900)

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        async def refresh(answer: Cluster) -> list[str]:
            before = app.picture
            reader.answer(answer)
            await pilot.press("r")
            await until(pilot, lambda: app.picture is not before)
            return screen(app)[3:15]

        reader.answer(cluster)
        await loaded(app, pilot)
        await pilot.press("2", *["pagedown"] * 3, *["up"] * 5)
        seen = screen(app)[3:15]
        assert any(line.startswith(">") for line in seen)
        assert await refresh(replace(cluster, jobs=(*jobs, ahead))) == seen

        queue = app.query_one(QueueView)
        queue.scroll_to(y=150, animate=False, immediate=True)
        await pilot.pause()
        away = screen(app)[3:15]
        assert await refresh(replace(cluster, jobs=(*jobs, ahead))) == away

    drive(Source("LIVE", reader), look)


def test_a_refresh_goes_on_under_the_help() -> None:
    reader = Script()

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await pilot.press("question_mark")
        reader.answer(files.demo())
        await loaded(app, pilot)
        app._show_header()
        await pilot.press("escape")
        assert "us-1" in text(app)
        await pilot.press("right")
        assert "ip-10-1-0-60" in text(app)

    drive(Source("LIVE", reader), look)


# --- ending --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["q", "ctrl+c", "ctrl+q"])
def test_a_read_that_hangs_does_not_hold_up_quitting(key: str) -> None:
    reader = Script()
    before = threading.enumerate()

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await until(pilot, lambda: reader.reads)
        await pilot.press(key)

    app = drive(Source("LIVE", reader), look)
    assert app.return_code == 0
    (thread,) = set(threading.enumerate()).difference(before)
    assert thread.daemon
    reader.answer(files.demo())  # long after the app has gone: of no effect
    thread.join(WATCHDOG)
    assert not thread.is_alive()


def test_the_process_ends_while_a_read_hangs() -> None:
    program = """
import threading
from hyp_submit.tui.app import HypSubmitApp
from hyp_submit.tui import Source
app = HypSubmitApp(Source("LIVE", lambda: threading.Event().wait()))
app.call_later(app.exit)
app.run(headless=True)
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=WATCHDOG, check=False, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_live_cluster_is_read_apart_and_its_errors_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/nonexistent/slurm.conf")
    with pytest.raises(Unreadable, match=r"SLURM_CONF names /nonexistent/slurm\.conf, which is no file"):
        slurm.read_apart()


# --- what it is made of --------------------------------------------------------------------------------------------


def test_it_knows_no_more_of_the_core_than_what_there_is_to_show() -> None:
    allowed = {f"hyp_submit.{name}" for name in ("errors", "flow", "model", "report", "views")}
    for path in sorted(Path(tui.__file__).parent.glob("*.py")):
        for found in ast.walk(ast.parse(path.read_text())):
            names = {found.module or ""} if isinstance(found, ast.ImportFrom) and not found.level else set[str]()
            names |= {alias.name for alias in found.names} if isinstance(found, ast.Import) else set()
            assert {name for name in names if name.startswith("hyp_submit")} <= allowed, path
            assert not names & {"subprocess", "boto3", "socket", "sqlite3"}, path


def test_importing_it_loads_nothing_that_asks_slurm_or_aws() -> None:
    program = "import sys, hyp_submit.tui; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=WATCHDOG
    )
    assert not {"boto3", "pyslurm", "hyp_submit.cli", "hyp_submit.slurm", "tui"} & set(loaded.stdout.split())


# --- terminals -----------------------------------------------------------------------------------------------------


@contextmanager
def no_color() -> Iterator[pytest.MonkeyPatch]:
    """An environment that asks for no colours; Textual takes the variable away from it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        yield patch


@pytest.mark.parametrize("size", SIZES)
def test_without_colours_the_screen_says_the_same(size: tuple[int, int]) -> None:
    found: list[list[str]] = []

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        found.append(screen(app))

    drive(demo(), look, size)
    with no_color():
        app = drive(demo(), look, size)
    assert app.no_color
    assert found[0] == found[1]


def test_every_theme_has_the_colours() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        for theme in app.available_themes:
            app.theme = theme
            await pilot.pause()
            assert "us-1" in text(app)

    drive(demo(), look)


@pytest.mark.parametrize("size", [(60, 20), *SIZES])
def test_in_ascii_nothing_else_is_drawn(size: tuple[int, int]) -> None:
    cluster = files.demo()
    cluster = replace(cluster, jobs=tuple(replace(job, name="モデル-λ") for job in cluster.jobs))

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        for keys in (["right"] * 3, ["2"], ["question_mark"]):
            await pilot.press(*keys)
            assert text(app).isascii(), text(app)

    drive(showing(cluster), look, size, ascii_only=True)


def test_at_60_columns_the_least_important_ones_are_left_out() -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        assert screen(app)[0].endswith("DEMO")
        await pilot.press("2")
        assert screen(app)[2].split("  ")[-1] == "LEFT / WAITS FOR"
        assert "PARTITION" not in screen(app)[2]

    drive(demo(), look, (60, 20))


@pytest.mark.parametrize("size", [(59, 20), (60, 11), (20, 5)])
def test_a_terminal_that_is_too_small_is_told_so_until_it_grows(size: tuple[int, int]) -> None:
    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        assert " ".join(text(app).split()) == "Resize to at least 60x12"
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: "us-1" in text(app))
        assert screen(app)[0].endswith("DEMO")

    drive(demo(), look, size)


@pytest.mark.parametrize("size", [(60, 12), (80, 24), (140, 45), (300, 100)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_no_line_is_wider_than_the_screen(size: tuple[int, int], *, ascii_only: bool) -> None:
    long = "x" * 200
    jobs = [Job(10**9, long, long, long, "RUNNING", ("n1",), 1), Job(2, "テスト" * 9, "テスト" * 9, "p", "PENDING")]
    cluster = replace(cluster_of([Node("n1", "DOWN", reason=long)], jobs), name=long)
    partitions = tuple(Partition(f"{name}{long}", long, "t", ("n1",)) for name in "abc")

    async def look(app: HypSubmitApp, pilot: Pilot[Any]) -> None:
        await loaded(app, pilot)
        for key in "12":
            await pilot.press(key)
            for view in (*app.query(LineView), *app.query(Lines)):
                for y in range(view.size.height):
                    assert view.render_line(y).cell_length == view.scrollable_content_region.width

    drive(showing(replace(cluster, partitions=partitions)), look, size, ascii_only=ascii_only)


# --- what stands behind it, without a screen -----------------------------------------------------------------------

FLAGS = {
    "DRAIN": "D",
    "FAIL": "X",
    "INVALID_REG": "X",
    "NOT_RESPONDING": "*",
    "NO_RESPOND": "*",
    "POWERED_DOWN": "~",
    "POWERING_DOWN": "~",
    "POWER_DOWN": "~",
    "POWERING_UP": "^",
    "POWER_UP": "^",
    "REBOOT_ISSUED": "^",
    "REBOOT_REQUESTED": "^",
    "RESERVED": "r",
    "MAINTENANCE": "r",
    "BLOCKED": "r",
    "PLANNED": "p",
    "COMPLETING": "#",
    "CLOUD": ".",
    "DYNAMIC_NORM": ".",
}


@pytest.mark.parametrize(("flag", "glyph"), FLAGS.items())
def test_each_flag_of_an_idle_node_has_its_glyph(flag: str, glyph: str) -> None:
    assert condition(Node("n", "IDLE", frozenset({flag}))).glyph == glyph


@pytest.mark.parametrize(
    ("state", "glyph"),
    [
        ("IDLE", "."),
        ("ALLOCATED", "#"),
        ("MIXED", "+"),
        ("DOWN", "X"),
        ("ERROR", "X"),
        ("FUTURE", "~"),
        ("UNKNOWN", "?"),
        ("NEW_IN_SLURM_99", "?"),
        ("ALLOCATED+DRAIN", "d"),
        ("MIXED+DRAIN", "d"),
        ("IDLE+COMPLETING+DRAIN", "d"),
        ("IDLE+DRAIN+NOT_RESPONDING", "D"),
        ("IDLE+DRAIN+POWERED_DOWN", "D"),
        ("DOWN+DRAIN", "X"),
        ("DOWN+NOT_RESPONDING", "X"),
        ("DOWN+NO_RESPOND+REBOOT_ISSUED", "^"),
        ("IDLE+NOT_RESPONDING+POWERING_UP", "^"),
        ("IDLE+NOT_RESPONDING+POWERED_DOWN", "~"),
        ("ALLOCATED+NOT_RESPONDING", "*"),
        ("ALLOCATED+RESERVED", "#"),
        ("MIXED+PLANNED", "+"),
        ("ALLOCATED+REBOOT_REQUESTED", "#"),
        ("IDLE+PLANNED+RESERVED", "r"),
    ],
)
def test_of_several_conditions_the_one_that_matters_most_is_shown(state: str, glyph: str) -> None:
    base, *flags = state.split("+")
    assert condition(Node("n", base, frozenset(flags))).glyph == glyph


def test_no_node_looks_free_that_is_not() -> None:
    for base, one, other in product(BASES, FLAGS, FLAGS):
        node = Node("n", base, frozenset({one, other}))
        assert node.free or condition(node) not in {Condition.IDLE, Condition.PLANNED}, node.state


def test_a_node_that_slurm_does_not_know_is_unknown() -> None:
    assert condition(None) is Condition.UNKNOWN


def test_glyphs_are_told_apart_and_ordered_from_good_to_bad() -> None:
    assert len({one.glyph for one in Condition}) == len(Condition)
    assert SEVERITY[Condition.IDLE] < SEVERITY[Condition.DRAINING] < SEVERITY[Condition.DRAINED]
    assert SEVERITY[Condition.DRAINED] < SEVERITY[Condition.DOWN]


def test_the_worst_reason_of_a_row_comes_without_who_and_when() -> None:
    nodes = [
        Node("n1", "IDLE", frozenset({"DRAIN"}), reason="EFA [root@2026-11-30T13:12:40]"),
        Node("n2", "IDLE", frozenset({"DRAIN"}), reason="EFA [root@2026-11-30T13:12:41]"),
        Node("n3", "IDLE", frozenset({"DRAIN"}), reason="disk [sda]"),
        Node("n4", "IDLE"),
    ]
    (row,) = picture(cluster_of(nodes)).partitions[0].rows
    assert row.trouble == Trouble(Condition.DRAINED, 2, "EFA")
    (row,) = picture(cluster_of(nodes[2:])).partitions[0].rows
    assert row.trouble == Trouble(Condition.DRAINED, 1, "disk [sda]")
    (row,) = picture(cluster_of([*nodes, Node("n5", "DOWN")])).partitions[0].rows
    assert row.trouble == Trouble(Condition.DOWN, 1, None)
    (row,) = picture(cluster_of(nodes[3:])).partitions[0].rows
    assert row.trouble is None


def test_switches_in_a_circle_or_of_nobody_lose_no_node() -> None:
    switches = (
        Switch("a", ("b", "missing")),
        Switch("b", ("a",), ("n1",)),
        Switch("root", ("leaf",)),
        Switch("leaf", (), ("n2", "n9")),
    )
    cluster = cluster_of([Node(name, "IDLE") for name in ("n1", "n2", "n3")])
    cluster = replace(cluster, topologies=(Topology("t", "tree", switches=switches),))
    rows = picture(cluster).partitions[0].rows
    assert [(row.name, row.depth, row.nodes, row.loose) for row in rows] == [
        ("root", 0, (), False),
        ("leaf", 1, ("n2",), False),
        ("on no switch", 0, ("n1", "n3"), True),
    ]


def test_a_job_that_waits_in_several_partitions_is_in_the_queue_of_each() -> None:
    job = Job(1, "u", "x", "a,b", "PENDING")
    queue = picture(replace(cluster_of([]), jobs=(job,))).queue
    assert {name: found.jobs for name, found in queue.items()} == {None: (job,), "a": (job,), "b": (job,)}


def test_the_outlook_of_a_job() -> None:
    running = Job(1, "u", "x", "p", "RUNNING", end_time=NOW + timedelta(minutes=5))
    assert outlook(running, NOW) == "5 min left"
    assert outlook(running, NOW + timedelta(hours=1)) == "over its time limit"
    assert outlook(replace(running, end_time=None), NOW) == "no time limit"
    assert outlook(Job(1, "u", "x", "p", "PENDING", reason="Priority"), NOW) == "Priority"
    assert outlook(Job(1, "u", "x", "p", "COMPLETED", reason="None"), NOW) == ""


def test_columns_go_by_their_importance() -> None:
    columns = (Column("a", 5, keep=2, most=8), Column("b", 5, keep=1), Column("c", 5, keep=3, most=9))
    assert [one.width for one in fit_columns(columns, 15 + 2 * GAP)] == [5, 5, 5]
    assert [one.width for one in fit_columns(columns, 20 + 2 * GAP)] == [8, 5, 7]
    assert [one.width for one in fit_columns(columns, 99)] == [8, 5, 9]
    assert [one.name for one in fit_columns(columns, 12)] == ["a", "c"]
    assert [one.name for one in fit_columns(columns, 3)] == ["c"]
