"""read -> plan -> gate -> submit, one step a function. What each step needs from outside comes in through `Ports`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import PurePath
from typing import Literal

from hyp_submit import batch, gate, hyperpod, launch
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
from hyp_submit.model import (
    Cluster,
    Event,
    Framework,
    HyperPod,
    Instance,
    InstanceGroup,
    Open,
    Plan,
    Request,
    Workload,
)
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
    instances: Callable[[], tuple[Instance, ...]]
    """All instances of the HyperPod cluster; () where they are not to be had."""
    check: Callable[[Sequence[str], Mapping[str, str]], None]
    """Have sbatch read its options without submitting. Raises Refused where it would not take them."""
    sbatch: Callable[[Sequence[str], Mapping[str, str], str], str]
    """Run sbatch: argv, environment, job token; the job id. Raises Refused, OutcomeUnknown, or Transient."""
    find: Callable[[str], str | None]
    """The id of the job with that token, where there is one. Raises Unreadable."""
    environment: Mapping[str, str]
    """The environment that the job is submitted from."""
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
    if line.script == ":":
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
    instances = ports.instances()
    groups = hyperpod.with_ultraservers(groups, instances)
    if hyperpod.needs_instances(groups):
        groups = hyperpod.with_partitions(groups, instances, cluster)
    return replace(cluster, instance_groups=groups)


def _joined(ports: Ports, cluster: Cluster, pod: HyperPod) -> Cluster:
    """The cluster with its instance groups, and the partitions that they feed, by their nodes where they do not say."""
    groups = pod.groups
    if hyperpod.needs_instances(groups):
        groups = hyperpod.with_partitions(groups, ports.instances(), cluster)
    return replace(cluster, instance_groups=groups)


def plan_live(ports: Ports, ask: Ask) -> tuple[Cluster, Plan]:
    """The live cluster and the plan on it.

    HyperPod is asked only where the nodes that Slurm has now cannot hold the job: then what is still to come counts.
    """
    cluster = ports.slurm()
    made = make_plan(cluster, ask)
    if made.fit.ever:
        return cluster, made
    try:
        cluster = _joined(ports, cluster, ports.hyperpod())
    except (NotAsked, Transient):
        return cluster, made
    return cluster, make_plan(cluster, ask)


def plan_possible(cluster: Cluster, ask: Ask) -> Plan:
    """The plan for the ask. Raises CannotFit where no state of the cluster holds the job."""
    made = make_plan(cluster, ask)
    if not made.fit.possible:
        raise CannotFit("; ".join(note.message for note in made.errors))
    return made


def sbatch_call(ask: Ask, plan: Plan | None = None, token: str | None = None) -> list[str]:
    """The sbatch that the ask comes to: without a plan only the user's own words, with a token to find the job by."""
    comment = ask.options.get("comment")
    return batch.sbatch_argv(plan, ask.line, token, comment.value if comment else None)


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
    read: bool = False
    """Whether Slurm could be read: from then on trouble is waited out."""
    asks_hyperpod: bool | None = None
    """None until it is known whether HyperPod can be asked."""

    def look(self) -> Look:
        """Raises Transient where this look could not be made."""
        cluster = self.ports.slurm()
        self.read = True
        pod = self._hyperpod()
        if pod is not None:
            cluster = _joined(self.ports, cluster, pod)
        seen, plan = observe(self.ports.now(), cluster, self.ask, pod)
        if plan is not None and not plan.fit.possible and not self.latch.counts and _complete(seen.groups or ()):
            raise CannotFit("; ".join(note.message for note in plan.errors))
        decision, self.latch = gate.look(seen, self.latch, self.hold.require)
        return Look(seen, decision, plan)

    def unsettle(self) -> None:
        """Something went wrong: what was ready must be seen to be so again, twice."""
        self.latch = replace(self.latch, waited=True, good=0)

    def _hyperpod(self) -> HyperPod | None:
        if self.hold.mode == "slurm" or self.asks_hyperpod is False:
            return None
        try:
            answer = self.ports.hyperpod()
        except (NotAsked, NoEndpoint) as error:
            if self.asks_hyperpod:
                raise Transient(str(error)) from error
            if self.hold.mode == "hyperpod":
                self.read = False
                raise
            self.say(f"HyperPod is not asked, waiting on Slurm alone: {error}")
            self.asks_hyperpod = False
            return None
        self.asks_hyperpod = True
        return answer


def _complete(groups: Sequence[InstanceGroup]) -> bool:
    """Whether the groups are as large as they aim to be, and aim at something: nothing failed, nothing is to come."""
    return all(group.status == "InService" and 0 < group.target <= group.current for group in groups)


def observe(now: datetime, cluster: Cluster, ask: Ask, pod: HyperPod | None) -> tuple[gate.Observation, Plan | None]:
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
            groups=cluster.groups_of(name or "") if pod else None,
            cluster_status=pod.status if pod else None,
        ),
        plan,
    )


HandOver = Callable[[Plan, Callable[[], str]], str]
"""Told a plan and how to submit it, does so and says the job's id."""


def submit_when_ready(ports: Ports, ask: Ask, hold: Hold, show: Show, say: Say, hand_over: HandOver) -> str:
    """Wait until the partition is ready for the job, then hand it over; the job's id.

    A slurmctld that goes away at that moment, with the job not there, is trouble like any other during a wait: the
    wait goes on, and the queue is asked for the job before it is submitted once more. Raises what `wait_ready` and
    sbatch do.
    """
    submission = _Submission(ports, ask)
    if hold.mode == "off":
        made = plan_possible(ports.slurm(), ask)
        return hand_over(made, lambda: submission.submit(made))
    door = _Gate(ports, ask, hold, say)
    started = ports.now()
    while True:
        plan = _wait(door, started, show, check=lambda: ports.check(sbatch_call(ask), ports.environment))
        try:
            return hand_over(plan, partial(submission.submit, plan))
        except Transient as error:
            if not hold.wait:
                raise
            say(f"{error}; still holding")
            door.unsettle()


@dataclass
class _Submission:
    """One job on its way to Slurm: however often it is tried, it is one job."""

    ports: Ports
    ask: Ask
    token: str = field(default_factory=lambda: f"hyp-submit:{uuid.uuid4().hex[:12]}")
    """Goes into the job's comment, so that it can be found again."""
    tried: bool = False

    def submit(self, plan: Plan) -> str:
        """Hand the job to Slurm, once; the job id."""
        if self.tried and (found := self.ports.find(self.token)) is not None:
            return found
        self.tried = True
        argv = sbatch_call(self.ask, plan, self.token)
        return self.ports.sbatch(argv, batch.environment(self.ports.environment, plan), self.token)


def wait_ready(ports: Ports, ask: Ask, hold: Hold, show: Show, say: Say) -> Plan:
    """Wait until the partition is ready for the job; the plan as it is then.

    Raises WillNotBeReady, TimedOutWaiting (also when not ready and not told to wait), CannotFit, and whatever a first
    look raises that cannot be made: after it, or once Slurm could be read, trouble is waited out.
    """
    return _wait(_Gate(ports, ask, hold, say), ports.now(), show)


def _wait(door: _Gate, started: datetime, show: Show, *, check: Callable[[], None] = lambda: None) -> Plan:
    """Look until ready. `check` is called once, before the first sleep: a mistake must not cost a whole wait."""
    ports, hold = door.ports, door.hold
    checked = False
    while True:
        waited = ports.now() - started
        try:
            found = door.look()
        except Transient as error:
            if not door.read or not hold.wait:
                raise
            found = Look(None, None, None, trouble=str(error))
            door.unsettle()
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
        if not checked:
            check()
            checked = True
        pause = hold.poll * random.uniform(0.8, 1.2)  # noqa: S311  jitter, so that many waiters do not ask at once
        pause = pause if left is None else min(pause, left)
        show(replace(found, next_in=pause, events=_events(ports, found)))
        ports.sleep(pause.total_seconds())


def _events(ports: Ports, found: Look) -> tuple[Event, ...]:
    """The newest events of the groups that a look found, newest first."""
    groups = (found.seen.groups if found.seen else None) or ()
    events = [event for group in groups for event in ports.events(group.name)]
    return tuple(sorted(events, key=lambda event: event.at, reverse=True))


def _why(found: Look) -> str:
    if found.trouble is not None:
        return found.trouble
    return "; ".join(found.decision.why) if isinstance(found.decision, gate.Wait) else "not ready"


def _with_reason(ports: Ports, found: Look) -> str:
    """The failure, with what the newest bad event of its groups says."""
    why = found.decision.why if isinstance(found.decision, gate.Failed) else ""
    event = next((event for event in _events(ports, found) if event.level != "Info"), None)
    if event is None:
        return why
    return f"{why}; last event: {event.text}{': ' + event.reason if event.reason else ''}"
