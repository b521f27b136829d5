"""The command line: flags in, one step of `flow` after another, the answer out."""

from __future__ import annotations

import errno
import os
import re
import sys
from datetime import UTC, datetime, timedelta
from functools import cache
from io import TextIOWrapper
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperCommand
from typer.exceptions import TyperException

from hyp_submit import __version__, console
from hyp_submit.errors import HypSubmitError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hyp_submit.batch import CommandLine
    from hyp_submit.doctor import Facts
    from hyp_submit.flow import Ask, Ports
    from hyp_submit.model import Cluster, Plan
    from hyp_submit.views import PartitionView, Picture

app = typer.Typer(
    name="hyp-submit",
    help="Topology-aware sbatch for large training jobs on SageMaker HyperPod Slurm clusters.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class SbatchCommand(TyperCommand):
    """A command in whose place for options every option of sbatch's is taken too, with its own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Sort the words: ours go on to the parser, sbatch's and the script's are kept in `ctx.obj`."""
        from hyp_submit.batch import split  # noqa: PLC0415

        ours = {
            name: not getattr(parameter, "is_flag", False)
            for parameter in self.get_params(ctx)
            for name in (*parameter.opts, *parameter.secondary_opts)
            if name.startswith("-")
        }
        ctx.obj = split(args, ours)
        rest: list[str] = super().parse_args(ctx, list(ctx.obj.ours))
        return rest

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002  the parser's own signature
        """What stands in the usage line."""
        return ["[OPTIONS] [SBATCH OPTIONS]", "SCRIPT [ARGS]"]


Size = Annotated[int | None, typer.Option(min=1, metavar="N", rich_help_panel="Parallel sizes")]


def _size(flag: str, text: str) -> Any:
    return typer.Option(flag, min=1, metavar="N", help=text, rich_help_panel="Parallel sizes (else read from SCRIPT)")


Tp = Annotated[int | None, _size("--tp", "Tensor parallel size.")]
Pp = Annotated[int | None, _size("--pp", "Pipeline parallel size.")]
Cp = Annotated[int | None, _size("--cp", "Context parallel size.")]
Ep = Annotated[int | None, _size("--ep", "Expert parallel size.")]
Etp = Annotated[int | None, _size("--etp", "Expert tensor parallel size.")]
Shard = Annotated[int | None, _size("--shard", "GPUs of an HSDP shard group.")]
FrameworkName = Annotated[
    str | None, typer.Option("--framework", metavar="NAME", help="How ranks are numbered: megatron, fsdp, ...")
]
Patience = Annotated[
    str,
    typer.Option(metavar="DURATION", help="How much later than the soonest start a larger segment may start; 0, inf."),
]
Demo = Annotated[bool, typer.Option("--demo", help="Use the bundled cluster: needs no Slurm.")]
SnapshotFile = Annotated[
    str | None, typer.Option("--snapshot", metavar="FILE", help="Use a cluster written by `hyp-submit snapshot`.")
]
HyperPodName = Annotated[
    str | None,
    typer.Option("--hyperpod", metavar="NAME", help="HyperPod cluster; else HYP_SUBMIT_CLUSTER, this node's."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]


@app.callback(invoke_without_command=True)
def _main(
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Show the version and exit.")] = False,
) -> None:
    if version:
        console.put(f"hyp-submit {__version__}")
        raise typer.Exit


@app.command(cls=SbatchCommand)
def plan(
    ctx: typer.Context,
    framework: FrameworkName = None,
    tp: Tp = None,
    pp: Pp = None,
    cp: Cp = None,
    ep: Ep = None,
    etp: Etp = None,
    shard: Shard = None,
    patience: Patience = "30m",
    demo: Demo = False,
    snapshot: SnapshotFile = None,
    hyperpod: HyperPodName = None,
    json: Json = False,
) -> None:
    """Show what would be asked of Slurm for SCRIPT, where it would land and when, and why.

    Every option of sbatch's is taken in its own place: --partition, --nodes, --segment, ... With --partition and
    --nodes no script is needed.
    """
    from hyp_submit import flow, report  # noqa: PLC0415

    sizes = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "shard": shard}
    ask = _ask(ctx.obj, framework, sizes, patience)
    if demo or snapshot is not None:
        known = _cluster(demo=demo, snapshot=snapshot)
        made = flow.make_plan(known, ask)
    else:
        known, made = flow.plan_live(_ports(hyperpod), ask)
    if json:
        console.put_json(report.plan_json(made))
    else:
        call = [word for word in flow.sbatch_call(ask, made) if word != "--parsable"]
        console.show(report.plan_lines(made, known.taken_at, ask.line.script, ask.framework, call))
    if not made.fit.ever:
        raise typer.Exit(4)


@app.command(cls=SbatchCommand)
def submit(
    ctx: typer.Context,
    framework: FrameworkName = None,
    tp: Tp = None,
    pp: Pp = None,
    cp: Cp = None,
    ep: Ep = None,
    etp: Etp = None,
    shard: Shard = None,
    patience: Patience = "30m",
    gate: Annotated[
        Literal["auto", "hyperpod", "slurm", "off"],
        typer.Option(help="Whom to ask whether the partition is ready.", rich_help_panel="Waiting"),
    ] = "auto",
    require: Annotated[
        Literal["all", "target"],
        typer.Option(help="Which of its instance groups must be ready.", rich_help_panel="Waiting"),
    ] = "all",
    poll: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between looks.", rich_help_panel="Waiting")
    ] = "30s",
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Give up after so long.", rich_help_panel="Waiting")
    ] = None,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="One look; not ready is exit 6.", rich_help_panel="Waiting")
    ] = False,
    hyperpod: HyperPodName = None,
) -> None:
    """Plan SCRIPT, hold it until its partition is ready, submit it once, and print the job id alone on stdout.

    Every option of sbatch's is taken in its own place and handed on.
    """
    from hyp_submit import flow, report  # noqa: PLC0415
    from hyp_submit.holding import HoldDisplay  # noqa: PLC0415

    hold = flow.Hold(
        mode=gate,
        require=require,
        poll=_poll(poll),
        timeout=None if timeout is None else _duration(timeout, "--timeout"),
        wait=not no_wait,
    )
    sizes = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "etp": etp, "shard": shard}
    ask = _ask(ctx.obj, framework, sizes, patience)
    if ask.line.script is None and not any(option.name == "wrap" for option in ask.line.options):
        raise UsageError("which script? hyp-submit submit [OPTIONS] SCRIPT [ARGS]")
    for name, why in _NOT_SUBMITTED.items():
        if name in ask.options:
            raise UsageError(f"--{name} ({ask.options[name].source}) {why}")
    console.show(report.open_lines(ask.workload), stderr=True)
    with HoldDisplay() as display:
        try:
            flow.submit_when_ready(_ports(hyperpod), ask, hold, display.show, display.say, _hand_over)
        except KeyboardInterrupt:
            display.close()
            console.fail("interrupted: nothing was submitted")
            raise typer.Exit(130) from None


_NOT_SUBMITTED = {
    "test-only": "submits nothing: hyp-submit plan says where and when the job would start",
    "wait": "is not supported yet: JOB=$(hyp-submit submit ...), then wait for the job by its id",
}
"""Options of sbatch's with which it does not simply submit and answer."""


def _hand_over(made: Plan, sbatch: Callable[[], str]) -> str:
    """Submit, and print the id. What would end this program meanwhile waits until Slurm has answered."""
    from hyp_submit import report, submission  # noqa: PLC0415

    console.show((report.Line("warning", note.message, "warn") for note in made.warnings), stderr=True)
    with submission.signals_deferred() as signals:
        job = sbatch()
        try:
            console.put(job)
        finally:  # where stdout cannot take it, the id must be told all the same
            console.say("submitted", f"job {job}, {report.summary(made)}", "good")
    if signals:
        console.say("note", f"job {job} was submitted before the signal: scancel {job} takes it back", "warn")
        raise typer.Exit(128 + signals[0])
    return job


PartitionName = Annotated[str | None, typer.Argument(metavar="[PARTITION]", help="Only this one.", show_default=False)]


@app.command()
def blocks(
    partition: PartitionName = None,
    demo: Demo = False,
    snapshot: SnapshotFile = None,
    json: Json = False,
) -> None:
    """Show blocks and leaf switches, a cell a node, and how many whole segments of each size fit now."""
    from hyp_submit import overview  # noqa: PLC0415

    picture, views = _views(_cluster(demo=demo, snapshot=snapshot), partition)
    if json:
        console.put_json(overview.blocks_json(picture, views))
    else:
        console.rows(overview.blocks(views, console.width()))


@app.command()
def status(
    partition: PartitionName = None,
    demo: Demo = False,
    snapshot: SnapshotFile = None,
    hyperpod: HyperPodName = None,
    json: Json = False,
) -> None:
    """Show partitions: nodes free, in use and out of use and why, and the instance groups that feed them."""
    from hyp_submit import flow, overview  # noqa: PLC0415

    live = not demo and snapshot is None
    known = (
        flow.look_around(_ports(hyperpod), lambda text: console.log("note", text, "warn"))
        if live
        else _cluster(demo=demo, snapshot=snapshot)
    )
    picture, views = _views(known, partition)
    if json:
        console.put_json(overview.status_json(picture, views))
    else:
        console.rows(overview.status(picture, views, console.width()))


@app.command()
def jobs(
    mine: Annotated[bool, typer.Option("--mine", "--me", help="Only my own.")] = False,
    user: Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="Only this user's.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", metavar="NAME", help="Only in this partition.")
    ] = None,
    state: Annotated[str | None, typer.Option("--state", "-t", metavar="STATE", help="running, pending, ...")] = None,
    demo: Demo = False,
    snapshot: SnapshotFile = None,
    json: Json = False,
) -> None:
    """Show the queue, arrays folded, with the blocks that each job has."""
    from hyp_submit import queue, views  # noqa: PLC0415

    known = _cluster(demo=demo, snapshot=snapshot)
    picture = views.picture(known)
    wanted = _me() if mine else user
    ordered = picture.queue[None].jobs
    listed = queue.entries(queue.select(ordered, user=wanted, partition=partition, state=state))
    if json:
        console.put_json(queue.jobs_json(picture, listed))
    else:
        console.rows(queue.jobs(picture, listed, known.taken_at))


def _views(cluster: Cluster, partition: str | None) -> tuple[Picture, tuple[PartitionView, ...]]:
    """The picture of a cluster, and its partitions or the one named."""
    from hyp_submit import overview, views  # noqa: PLC0415

    picture = views.picture(cluster)
    found = overview.partitions_of(picture, partition)
    if partition is not None and partition not in cluster.partition:
        names = ", ".join(one.name for one in cluster.partitions) or "none"
        raise UsageError(f"no partition {partition!r} in {cluster.name}: there are {names}")
    return picture, found


def _me() -> str:
    """My user name, as Slurm has it."""
    import getpass  # noqa: PLC0415

    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise UsageError("--mine: this user id has no name: --user NAME") from error


@app.command()
def doctor(hyperpod: HyperPodName = None, json: Json = False) -> None:
    """Look for what stands in the way of plans and holds here, with the remedy; exit 10 if something fails."""
    from hyp_submit import doctor as examination  # noqa: PLC0415

    checks = examination.examine(_facts(hyperpod))
    if json:
        console.put_json(examination.document(checks))
    else:
        console.rows(examination.rows(checks))
    if not examination.healthy(checks):
        raise typer.Exit(10)


def _facts(hyperpod: str | None) -> Facts:
    """All that can be found out from here."""
    from dataclasses import replace  # noqa: PLC0415

    from hyp_submit import aws, slurm  # noqa: PLC0415
    from hyp_submit.doctor import Facts  # noqa: PLC0415

    facts = Facts(environment=os.environ)
    try:
        reading = slurm.read(_now)
        facts = replace(
            facts,
            reader=reading.choice.reader,
            reader_why=reading.choice.why,
            cluster=reading.cluster,
            notes=reading.notes,
            settings=slurm.configuration(),
        )
    except HypSubmitError as error:
        facts = replace(facts, slurm_error=str(error))
    try:
        client = aws.connect(hyperpod)
        return replace(facts, hyperpod=client.read(), denied=client.denied())
    except HypSubmitError as error:
        return replace(facts, hyperpod_error=str(error))


@app.command()
def snapshot(
    anonymize: Annotated[
        bool, typer.Option("--anonymize", help="Replace every name: of nodes, users, jobs, partitions, ...")
    ] = False,
    hyperpod: HyperPodName = None,
    demo: Demo = False,
    snapshot: SnapshotFile = None,
) -> None:
    """Write the cluster as it is now to stdout, for --snapshot elsewhere."""
    from hyp_submit import anonymous, flow, snapshots  # noqa: PLC0415

    if demo or snapshot is not None:
        known = _cluster(demo=demo, snapshot=snapshot)
    else:
        known = flow.look_around(_ports(hyperpod), lambda text: console.log("note", text, "warn"))
    console.put(snapshots.dump(anonymous.anonymize(known) if anonymize else known).decode().rstrip("\n"))


@app.command()
def tui(
    demo: Demo = False,
    snapshot: SnapshotFile = None,
    refresh: Annotated[str, typer.Option(metavar="DURATION", help="Time between reads; inf: only when asked.")] = "30s",
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters alone.")] = False,
) -> None:
    """Show blocks, nodes and the queue on a screen that keeps itself up to date."""
    from hyp_submit import slurm  # noqa: PLC0415
    from hyp_submit.tui import Source, run  # noqa: PLC0415

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("tui needs a terminal: hyp-submit blocks and hyp-submit jobs print the same")
    pause = _duration(refresh, "--refresh")
    live = not demo and snapshot is None
    source = Source(
        badge="LIVE" if live else "DEMO" if demo else "SNAPSHOT",
        read=slurm.read_apart if live else lambda: _cluster(demo=demo, snapshot=snapshot),
        refresh=pause if live else None,
    )
    run(source, ascii_only=ascii_only)


# --- from flags to what flow takes ---------------------------------------------------------------------------------


def _ask(line: CommandLine, framework: str | None, sizes: dict[str, int | None], patience: str) -> Ask:
    from hyp_submit import files, flow  # noqa: PLC0415
    from hyp_submit.model import Request  # noqa: PLC0415

    return flow.read_ask(
        line,
        None if line.script is None else files.script(line.script),
        os.environ,
        files.frameworks(),
        framework=framework,
        sizes={size: value for size, value in sizes.items() if value is not None},
        request=Request(patience=_duration(patience, "--patience")),
    )


def _cluster(*, demo: bool, snapshot: str | None) -> Cluster:
    """The cluster that the flags name, else the one that this host belongs to."""
    from hyp_submit import files  # noqa: PLC0415

    if demo and snapshot is not None:
        raise UsageError("--demo and --snapshot are two clusters: give one")
    if demo:
        return files.demo()
    return files.snapshot(snapshot) if snapshot is not None else _live()


def _live() -> Cluster:
    """The cluster that this host belongs to. What limits the view of it is said, once."""
    from hyp_submit import slurm  # noqa: PLC0415

    reading = slurm.read(_now)
    for note in reading.notes:
        _note(note)
    return reading.cluster


@cache
def _note(text: str) -> None:
    """A line of narration that a wait with many looks says once."""
    console.log("note", text, "warn")


def _now() -> datetime:
    return datetime.now(UTC)


def _ports(hyperpod: str | None) -> Ports:
    """The real world. HyperPod is connected to at the first question."""
    from hyp_submit import aws, flow, submission  # noqa: PLC0415

    client = cache(lambda: aws.connect(hyperpod))
    return flow.Ports(
        slurm=_live,
        hyperpod=lambda: client().read(),
        events=lambda group: client().events(group),
        instances=lambda: client().instances(),
        check=submission.check,
        sbatch=submission.sbatch,
        find=submission.find,
        environment=os.environ,
        now=_now,
        sleep=sleep,
    )


_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "": 1}


def _duration(text: str, flag: str) -> timedelta | None:
    """`90`, `30s`, `15m`, `6h`, `2d`; `inf` is None."""
    if text == "inf":
        return None
    match = re.fullmatch(r"(\d{1,7}(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"{flag} {text}: not a duration; write 30s, 15m, 6h, 2d or inf")
    return timedelta(seconds=float(match[1]) * _UNITS[match[2]])


def _poll(text: str) -> timedelta:
    """The time between looks. AWS asks not to be polled faster than every 10 s; an endpoint on this host may be."""
    asked = _duration(text, "--poll")
    if asked is None:
        raise UsageError("--poll inf would never look again; write 30s, 5m")
    endpoint = os.environ.get("AWS_ENDPOINT_URL_SAGEMAKER", "")
    local = re.match(r"https?://(localhost|127\.[\d.]+|\[::1\])([:/]|$)", endpoint)
    return max(asked, timedelta(seconds=0.2 if local else 10))


def main() -> None:
    """The console script: what the user can mend becomes one line and its exit code, a bug keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files need not be UTF-8
    try:
        sys.exit(app(standalone_mode=False))
    except HypSubmitError as error:
        _fail(error.code, str(error), error.exit_code)
    except TyperException as error:
        message = " ".join(getattr(error, "format_message", error.__str__)().split())
        command = f" {sys.argv[1]}" if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else ""
        if message:
            _fail("usage", f"{message} (hyp-submit{command} --help)", UsageError.exit_code)
        sys.exit(UsageError.exit_code)
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EIO}:
            raise
        console.abandon_stdout()
        console.fail(f"the output cannot be written: {error.strerror}")
        sys.exit(UsageError.exit_code)
    except KeyboardInterrupt:
        console.fail("interrupted")
        sys.exit(130)


def _fail(code: str, message: str, exit_code: int) -> NoReturn:
    """Say an error in one line, and as JSON where a plan was asked for as JSON."""
    if sys.argv[1:2] == ["plan"] and "--json" in sys.argv:
        from hyp_submit import report  # noqa: PLC0415

        console.put_json(report.error_json(code, message))
    console.fail(message)
    sys.exit(exit_code)
