"""read -> plan -> gate -> submit, one step a function. What each step needs from outside comes in through `Ports`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import PurePath
from typing import Literal

from hyp_submit import batch, gate, launch
from hyp_submit import plan as planner
from hyp_submit.errors import (
    CannotFit,
    NoEndpoint,
    NotAsked,
    TimedOutWaiting,
    Transient,
    UsageError,
    WillNotBeReady,
)
from hyp_submit.model import Cluster, Event, Framework, HyperPod, Open, Plan, Request, Workload
from hyp_submit.workload import SIZES, with_size

GateMode = Literal["auto", "hyperpod", "slurm", "off"]


Say = Callable[[str], None]
"""Shows one line of narration."""


@dataclass(frozen=True)
class Ports:
    """The outside world. Readers raise Transient where looking again may help."""

    slurm: Callable[[], Cluster]
    hyperpod: Callable[[], HyperPod]
    """Raises NotAsked where HyperPod cannot be asked from here."""
    events: Callable[[str], tuple[Event, ...]]
    """The newest events of an instance group; () where there are none to be had."""
    ultraservers: Callable[[], Mapping[str, tuple[tuple[str, int], ...]]]
    """The UltraServers of each instance group with their running instances; {} where they are not to be had."""
    sbatch: Callable[[Sequence[str], Mapping[str, str], str, bool], str]
    """Run sbatch: argv, environment, job token, whether it answers only when the job has ended; the job id.

    Raises Refused or OutcomeUnknown.
    """
    now: Callable[[], datetime]
    sleep: Callable[[float], None]


@dataclass(frozen=True)
class Ask:
    """What the user wants, as read from the command line and the script: all that a plan needs beside a cluster."""

    line: batch.CommandLine
    workload: Workload
    request: Request
    framework: Framework | None = None
    options: Mapping[str, batch.Option] = field(default_factory=dict)
    """sbatch's options as they hold, whoever said them."""


def read_ask(
    line: batch.CommandLine,
    script: str | None,
    environment: Mapping[str, str],
    frameworks: Sequence[Framework],
    *,
    framework: str | None = None,
    sizes: Mapping[str, int] | None = None,
    request: Request | None = None,
) -> Ask:
    """Put together what the script says and what the command line says; the command line wins.

    `script` is the script's text (None: no script), `sizes` the parallel sizes given as flags.
    """
    if line.script == ":" or ":" in line.arguments:
        raise UsageError("`:` begins another component: heterogeneous jobs are not planned yet, submit it with sbatch")
    name = PurePath(line.script).name if line.script else "script"
    if framework is not None and framework not in {one.name for one in frameworks}:
        raise UsageError(f"--framework {framework}: there are {', '.join(one.name for one in frameworks)}")
    found = Workload(framework=framework)
    lines: tuple[batch.Option, ...] = ()
    if script is not None:
        found = launch.read(script, name, frameworks, environment, framework)
        lines = batch.directives(script, name)
    options = batch.effective(line.options, environment, lines)
    for size, value in (sizes or {}).items():
        found = with_size(found, size, value, f"--{size}")
    found = replace(found, open=tuple(one for one in found.open if getattr(found, one.field) is None))
    if gpus := batch.gpus_per_node(options):
        found = with_size(found, "gpus_per_node", *gpus)
    if "nodes" in options:
        found = _with_nodes(found, options["nodes"])
    if found.framework is None and any(getattr(found, size) is not None for size in SIZES):
        raise UsageError("sizes without a framework: --framework NAME says how its ranks are numbered")
    request = _request(request or Request(), options)
    for own in lines:
        if own.name in {"segment", "switches"} and getattr(request, own.name) == batch.NONE:
            raise UsageError(f"--{own.name} none: {own.source} says --{own.name}={own.value}, take that line out")
    return Ask(line, found, request, next((one for one in frameworks if one.name == found.framework), None), options)


def _with_nodes(workload: Workload, option: batch.Option) -> Workload:
    """The workload with its node count. A range is planned, and asked for, at its least: a segment needs one count."""
    least, most = batch.node_range(option)
    workload = with_size(workload, "nodes", least, option.source)
    if least == most:
        return workload
    why = f"--nodes={option.value} ({option.source}) is a range, and a segment needs one count: {least} is taken"
    return replace(workload, open=(*workload.open, Open("nodes", why, "--nodes N")))


def _request(request: Request, options: Mapping[str, batch.Option]) -> Request:
    """The request with what sbatch's own options fix."""
    if (partition := options.get("partition")) and partition.value:
        if "," in partition.value:
            raise UsageError(
                f"--partition={partition.value} ({partition.source}): a plan is for one partition, name it"
            )
        request = replace(request, partition=partition.value)
    if "spread-segments" in options:
        request = replace(request, spread_segments=True)
    request = replace(request, unmodelled=tuple(name for name in batch.UNMODELLED if name in options))
    if option := options.get("segment"):
        request = replace(request, segment=_count_or_none(option))
    if option := options.get("switches"):
        request = replace(
            request, switches=_count_or_none(replace(option, value=(option.value or "").partition("@")[0]))
        )
    return request


def _count_or_none(option: batch.Option) -> int | Literal["none"]:
    """A count, or the word `none`, which is ours: sbatch is then asked without the option."""
    return "none" if option.value == batch.NONE else batch.whole_number(option)


def make_plan(cluster: Cluster, ask: Ask) -> Plan:
    """The plan for the ask on a cluster."""
    return planner.plan(cluster, ask.workload, ask.request, ask.framework)


def look_around(ports: Ports, say: Say) -> Cluster:
    """The live cluster with HyperPod's side of it; why that is missing is said, and no error."""
    cluster = ports.slurm()
    try:
        groups = ports.hyperpod().groups
    except (NotAsked, Transient) as error:
        say(f"instance groups are not shown: {error}")
        return cluster
    servers = ports.ultraservers() if groups else {}
    return replace(
        cluster,
        instance_groups=tuple(replace(group, ultraservers=servers.get(group.name, ())) for group in groups),
    )


def plan_live(ports: Ports, ask: Ask) -> tuple[Cluster, Plan]:
    """The live cluster and the plan on it.

    HyperPod is asked only where the nodes that Slurm has now cannot hold the job: then what is still to come counts.
    """
    cluster = ports.slurm()
    made = make_plan(cluster, ask)
    if made.fit.ever:
        return cluster, made
    try:
        cluster = replace(cluster, instance_groups=ports.hyperpod().groups)
    except (NotAsked, Transient):
        return cluster, made
    return cluster, make_plan(cluster, ask)


def plan_possible(cluster: Cluster, ask: Ask) -> Plan:
    """The plan for the ask. Raises CannotFit where no state of the cluster holds the job."""
    made = make_plan(cluster, ask)
    if not made.fit.possible:
        raise CannotFit("; ".join(note.message for note in made.errors))
    return made


# --- hold ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold:
    """How to wait."""

    mode: GateMode = "auto"
    require: gate.Require = "all"
    poll: timedelta = timedelta(seconds=30)
    timeout: timedelta | None = None
    """None: as long as it takes."""
    wait: bool = True
    """False: one look, ready or not."""


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the gate, for whoever shows it."""

    seen: gate.Observation | None
    """None where the look failed; `trouble` says why."""
    decision: gate.Decision | None
    plan: Plan | None
    events: tuple[Event, ...] = ()
    trouble: str | None = None
    waited: timedelta = timedelta()
    next_in: timedelta | None = None


Show = Callable[[Look], None]


@dataclass
class _Gate:
    """The looks of one hold: reads both sides, keeps the latch."""

    ports: Ports
    ask: Ask
    hold: Hold
    say: Say
    latch: gate.Latch = field(default_factory=gate.Latch)
    asks_hyperpod: bool = False
    looked: bool = False

    def look(self) -> Look:
        """Raises Transient where this look could not be made."""
        cluster = self.ports.slurm()
        hyperpod = self._hyperpod()
        if hyperpod is not None:
            cluster = replace(cluster, instance_groups=hyperpod.groups)
        seen, plan = observe(self.ports.now(), cluster, self.ask, hyperpod)
        self.looked = True
        if plan is not None and not plan.fit.possible and not seen.groups:
            raise CannotFit("; ".join(note.message for note in plan.errors))
        decision, self.latch = gate.look(seen, self.latch, self.hold.require)
        return Look(seen, decision, plan)

    def _hyperpod(self) -> HyperPod | None:
        if self.hold.mode == "slurm":
            return None
        if self.looked and not self.asks_hyperpod:
            return None
        try:
            answer = self.ports.hyperpod()
        except (NotAsked, NoEndpoint) as error:
            if self.asks_hyperpod:
                raise Transient(str(error)) from error
            if self.hold.mode == "hyperpod":
                raise
            self.say(f"HyperPod is not asked, waiting on Slurm alone: {error}")
            return None
        self.asks_hyperpod = True
        return answer


def observe(
    now: datetime, cluster: Cluster, ask: Ask, hyperpod: HyperPod | None
) -> tuple[gate.Observation, Plan | None]:
    """What the gate needs to know of a cluster, and the plan on it; no plan while the partition is not there yet."""
    name = ask.request.partition
    feeds = bool(name and cluster.groups_of(name))
    plan = None
    if name is None or name in cluster.partition or not feeds:
        plan = make_plan(cluster, ask)
        name = plan.partition
    partition = cluster.partition.get(name or "")
    nodes = [cluster.node[member] for member in partition.nodes if member in cluster.node] if partition else []
    return (
        gate.Observation(
            at=now,
            nodes=plan.nodes if plan else ask.request.nodes or ask.workload.nodes or 1,
            partition=name or "",
            partition_state=partition.state if partition else None,
            registered=len(nodes),
            usable=sum(node.healthy for node in nodes),
            fit=plan.fit if plan else None,
            groups=cluster.groups_of(name or "") if hyperpod else None,
            cluster_status=hyperpod.status if hyperpod else None,
        ),
        plan,
    )


def wait_ready(ports: Ports, ask: Ask, hold: Hold, show: Show, say: Say) -> Plan:
    """Wait until the partition is ready for the job; the plan as it is then.

    Raises WillNotBeReady, TimedOutWaiting (also when not ready and not told to wait), CannotFit, and whatever a first
    look that cannot be made raises. Trouble after the first look is waited out.
    """
    started = ports.now()
    door = _Gate(ports, ask, hold, say)
    while True:
        waited = ports.now() - started
        try:
            found = door.look()
        except Transient as error:
            if not door.looked or not hold.wait:
                raise
            found = Look(None, None, None, trouble=str(error))
            door.latch = replace(door.latch, waited=True, good=0)
        found = replace(found, waited=waited)
        if isinstance(found.decision, gate.Failed):
            raise WillNotBeReady(_with_reason(ports, found))
        if isinstance(found.decision, gate.Ready) and found.plan is not None:
            show(found)
            return found.plan
        left = None if hold.timeout is None else hold.timeout - waited
        if not hold.wait or (left is not None and left <= timedelta(0)):
            show(found)
            raise TimedOutWaiting(f"not ready after {round(waited.total_seconds())} s: {_why(found)}")
        pause = hold.poll * random.uniform(0.8, 1.2)  # noqa: S311  jitter, so that many waiters do not ask at once
        pause = pause if left is None else min(pause, left)
        if found.seen is not None and found.seen.groups:
            found = replace(
                found, events=tuple(event for group in found.seen.groups for event in ports.events(group.name))
            )
        show(replace(found, next_in=pause))
        ports.sleep(pause.total_seconds())


def _why(found: Look) -> str:
    if found.trouble is not None:
        return found.trouble
    return "; ".join(found.decision.why) if isinstance(found.decision, gate.Wait) else "not ready"


def _with_reason(ports: Ports, found: Look) -> str:
    """The failure, with what the newest bad event of its groups says."""
    why = found.decision.why if isinstance(found.decision, gate.Failed) else ""
    groups = found.seen.groups if found.seen else None
    events = [event for group in groups or () for event in ports.events(group.name) if event.level != "Info"]
    if not events:
        return why
    event = max(events, key=lambda event: event.at)
    return f"{why}; last event: {event.text}{': ' + event.reason if event.reason else ''}"


# --- submit --------------------------------------------------------------------------------------------------------


def submit(ports: Ports, ask: Ask, plan: Plan, environment: Mapping[str, str], token: str) -> str:
    """Hand the job to Slurm, once; the job id. `token` goes into the job's comment, so that it can be found again."""
    comment = ask.options.get("comment")
    argv = batch.sbatch_argv(plan, ask.line, token, comment.value if comment else None)
    return ports.sbatch(argv, batch.environment(environment, plan), token, "wait" in ask.options)
