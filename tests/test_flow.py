"""The flow over ports of its own: asks put together, and holds on a clock that only sleep moves."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from factories import FSDP, MEGATRON, NOW, block_cluster, flat_cluster, group, minutes

from hyp_submit import flow
from hyp_submit.batch import CommandLine, split
from hyp_submit.errors import (
    CannotFit,
    HypSubmitError,
    NoEndpoint,
    NotAsked,
    OutcomeUnknown,
    Refused,
    TimedOutWaiting,
    Transient,
    Unreadable,
    UsageError,
    WillNotBeReady,
)
from hyp_submit.flow import Ask, Hold, Look, Ports
from hyp_submit.gate import Ready, Wait
from hyp_submit.model import Cluster, Event, HyperPod, Instance, InstanceGroup, Open, Plan, Request, Workload

FULL = block_cluster("....", "....")
SHORT = block_cluster("....", "..xx")


def hyperpod(*groups: InstanceGroup, status: str = "InService") -> HyperPod:
    """DescribeCluster's answer."""
    return HyperPod("pod", status, continuous=True, groups=groups)


READY = hyperpod(group("InService", 8, 8, 8))
CREATING = hyperpod(group("Creating", 4, 8, 8))
ROLLED_BACK = hyperpod(group("InService", 0, 0, 0))


@dataclass
class World:
    """Ports whose answers are listed, look by look; the last one stays. An error in a list is raised."""

    slurm: Sequence[Cluster | HypSubmitError] = (FULL,)
    hyperpod: Sequence[HyperPod | HypSubmitError] = (READY,)
    events: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    instances: tuple[Instance, ...] = ()
    now: datetime = NOW
    slurm_looks: int = 0
    hyperpod_looks: int = 0
    slept: list[float] = field(default_factory=list)
    sbatch: Sequence[str | HypSubmitError] = ("42",)
    queue: Mapping[str, str] = field(default_factory=dict)
    """Jobs by their token; "any": whatever the token."""
    said: list[str] = field(default_factory=list)
    mistake: HypSubmitError | None = None
    checked: list[Sequence[str]] = field(default_factory=list)
    found: list[str] = field(default_factory=list)
    """The tokens that were looked for."""
    submitted: list[tuple[Sequence[str], Mapping[str, str], str]] = field(default_factory=list)

    def ports(self) -> Ports:
        return Ports(
            slurm=self._slurm,
            hyperpod=self._hyperpod,
            events=lambda name: self.events.get(name, ()),
            instances=lambda: self.instances,
            check=self._check,
            sbatch=self._sbatch,
            find=self._find,
            environment={"HOME": "/h", "SLURM_JOB_ID": "7"},
            now=lambda: self.now,
            sleep=self._sleep,
        )

    def _slurm(self) -> Cluster:
        answer = self.slurm[min(self.slurm_looks, len(self.slurm) - 1)]
        self.slurm_looks += 1
        if isinstance(answer, HypSubmitError):
            raise answer
        return answer

    def _hyperpod(self) -> HyperPod:
        answer = self.hyperpod[min(self.hyperpod_looks, len(self.hyperpod) - 1)]
        self.hyperpod_looks += 1
        if isinstance(answer, HypSubmitError):
            raise answer
        return answer

    def _check(self, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        assert "HOME" in environment
        self.checked.append(argv)
        if self.mistake is not None:
            raise self.mistake

    def _sbatch(self, argv: Sequence[str], environment: Mapping[str, str], token: str) -> str:
        self.submitted.append((argv, environment, token))
        answer = self.sbatch[min(len(self.submitted), len(self.sbatch)) - 1]
        if isinstance(answer, HypSubmitError):
            raise answer
        return answer

    def _find(self, token: str) -> str | None:
        self.found.append(token)
        return self.queue.get(token, self.queue.get("any"))

    def _sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.slept.append(seconds)
        self.now += timedelta(seconds=seconds)


@dataclass
class Held:
    """What a hold came to."""

    plan: Plan | None
    error: HypSubmitError | None
    shown: list[Look]
    said: list[str]

    @property
    def exit_code(self) -> int:
        return self.error.exit_code if self.error else 0


ASK = Ask(CommandLine((), (), "train.sh", ()), Workload(), Request(partition="part", nodes=8))


def submitted(world: World, settings: Hold | None = None, ask: Ask = ASK) -> str:
    """Hold and submit; the job's id."""

    def hand_over(plan: Plan, submit: Callable[[], str]) -> str:
        return submit()

    return flow.submit_when_ready(world.ports(), ask, settings or Hold(), lambda _: None, world.said.append, hand_over)


def hold(world: World, settings: Hold | None = None, ask: Ask = ASK) -> Held:
    """Wait until ready, or an error of ours."""
    shown: list[Look] = []
    said: list[str] = []
    try:
        plan = flow.wait_ready(world.ports(), ask, settings or Hold(), shown.append, said.append)
    except HypSubmitError as error:
        return Held(None, error, shown, said)
    return Held(plan, None, shown, said)


# --- hold ----------------------------------------------------------------------------------------------------------


def test_ready_at_the_first_look_costs_no_sleep() -> None:
    world = World()
    held = hold(world)
    assert held.plan is not None
    assert (held.plan.segment, world.slept, world.slurm_looks, world.hyperpod_looks) == (4, [], 1, 1)
    assert [look.decision for look in held.shown] == [Ready()]


def test_after_a_wait_two_good_looks_are_needed() -> None:
    world = World(slurm=[SHORT, FULL], hyperpod=[CREATING, READY])
    held = hold(world)
    assert held.plan is not None
    assert [look.decision for look in held.shown] == [
        Wait(("Slurm has 6 of the 8 nodes", "w1 Creating, 4 of 8 (MinCount 8)")),
        Wait(("ready; one more look to be sure",)),
        Ready(),
    ]
    assert len(world.slept) == 2
    assert all(24 <= pause <= 36 for pause in world.slept)


def test_the_plan_is_the_one_of_the_last_look() -> None:
    world = World(slurm=[SHORT, block_cluster("....", "....", "....")], hyperpod=[CREATING, READY])
    held = hold(world)
    assert held.plan is not None
    assert held.plan.census.total == 12


@pytest.mark.parametrize(
    ("slurm", "pod"),
    [
        ([SHORT, Transient("slurmctld is away"), FULL], [CREATING, READY]),
        ([SHORT, FULL], [CREATING, Transient("throttled"), READY]),
        ([SHORT, FULL], [CREATING, NoEndpoint("refused"), READY]),
        ([SHORT, FULL], [CREATING, NotAsked("the security token is invalid"), READY]),
    ],
)
def test_trouble_during_the_wait_is_waited_out_and_shown(
    slurm: list[Cluster | HypSubmitError], pod: list[HyperPod | HypSubmitError]
) -> None:
    held = hold(World(slurm=slurm, hyperpod=pod))
    trouble = [str(error) for error in [*slurm, *pod] if isinstance(error, HypSubmitError)]
    assert [look.trouble for look in held.shown] == [None, trouble[0], None, None]
    assert held.exit_code == 0


def test_credentials_that_fail_in_mid_wait_are_waited_out_in_hyperpod_mode_too() -> None:
    world = World(slurm=[SHORT, FULL], hyperpod=[CREATING, NotAsked("the security token is invalid"), READY])
    assert hold(world, Hold(mode="hyperpod")).exit_code == 0


def test_a_failed_look_between_two_good_ones_breaks_the_row() -> None:
    world = World(slurm=[SHORT, FULL, Transient("away"), FULL, FULL], hyperpod=[CREATING, READY])
    hold(world)
    assert world.slurm_looks == 5


@pytest.mark.parametrize("error", [Transient("slurmctld is away"), Unreadable("no Slurm on this host")])
def test_a_first_look_that_cannot_be_made_raises(error: HypSubmitError) -> None:
    world = World(slurm=[error])
    assert (hold(world).error, world.slept) == (error, [])


def test_a_hyperpod_that_is_away_at_the_first_look_is_waited_for() -> None:
    held = hold(World(hyperpod=[Transient("AWS answers ServiceUnavailable"), READY]))
    assert ([look.trouble for look in held.shown[:1]], held.exit_code) == (["AWS answers ServiceUnavailable"], 0)


def test_with_no_wait_it_is_not() -> None:
    error = Transient("AWS answers ServiceUnavailable")
    assert hold(World(hyperpod=[error]), Hold(wait=False)).error is error


def test_the_wait_ends_at_its_timeout() -> None:
    world = World(slurm=[SHORT], hyperpod=[CREATING])
    held = hold(world, Hold(timeout=timedelta(minutes=2)))
    assert isinstance(held.error, TimedOutWaiting)
    assert str(held.error) == ("not ready after 120 s: Slurm has 6 of the 8 nodes; w1 Creating, 4 of 8 (MinCount 8)")
    assert (held.exit_code, round(sum(world.slept)), world.now) == (6, 120, minutes(2))


def test_a_timeout_in_trouble_says_the_trouble() -> None:
    held = hold(
        World(slurm=[SHORT, Transient("slurmctld is away")], hyperpod=[CREATING]), Hold(timeout=timedelta(seconds=10))
    )
    assert (held.exit_code, str(held.error)) == (6, "not ready after 10 s: slurmctld is away")


def test_no_wait_is_one_look() -> None:
    world = World(slurm=[SHORT], hyperpod=[CREATING])
    held = hold(world, Hold(wait=False))
    assert (held.exit_code, world.slurm_looks, world.slept) == (6, 1, [])
    assert hold(World(), Hold(wait=False)).exit_code == 0


# --- whom to ask ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [NotAsked("no HyperPod cluster named"), NoEndpoint("nobody answers")])
def test_auto_falls_back_to_slurm_alone_and_says_why_once(error: HypSubmitError) -> None:
    world = World(slurm=[SHORT, FULL], hyperpod=[error])
    held = hold(world)
    assert held.exit_code == 0
    assert held.said == [f"HyperPod is not asked, waiting on Slurm alone: {error}"]
    assert (world.hyperpod_looks, [look.seen.groups for look in held.shown if look.seen]) == (1, [None, None, None])


def test_hyperpod_mode_raises_where_hyperpod_cannot_be_asked() -> None:
    error = NotAsked("no HyperPod cluster named")
    assert hold(World(hyperpod=[error]), Hold(mode="hyperpod")).error is error


def test_hyperpod_mode_raises_where_no_endpoint_answers_at_the_first_look() -> None:
    error = NoEndpoint("nobody answers")
    held = hold(World(hyperpod=[error]), Hold(mode="hyperpod"))
    assert (held.error, held.exit_code) == (error, 3)


def test_slurm_mode_never_asks_hyperpod() -> None:
    world = World(hyperpod=[ROLLED_BACK])
    assert (hold(world, Hold(mode="slurm")).exit_code, world.hyperpod_looks) == (0, 0)


def test_require_is_handed_to_the_gate() -> None:
    world = World(hyperpod=[hyperpod(group(current=8, target=12))])
    assert hold(world, Hold(require="all")).exit_code == 0
    assert hold(world, Hold(require="target", wait=False)).exit_code == 6


# --- failures ------------------------------------------------------------------------------------------------------


def test_a_first_look_after_the_rollback_is_exit_5() -> None:
    held = hold(World(slurm=[block_cluster("xxxx", "xxxx")], hyperpod=[ROLLED_BACK]))
    assert (held.exit_code, str(held.error)) == (5, "the instance groups of part aim at 0 instances, the job needs 8")


def test_a_rollback_during_the_wait_is_exit_5_with_its_history() -> None:
    held = hold(World(slurm=[SHORT], hyperpod=[CREATING, ROLLED_BACK]))
    assert isinstance(held.error, WillNotBeReady)
    assert str(held.error) == (
        "the instance groups of part aim at 0 instances, the job needs 8; instance group w1 was rolled back (or lowered"
        " by a person): MinCount 8 -> 0, TargetCount 8 -> 0; it is InService with 0 instances"
    )


def test_a_failure_ends_with_the_newest_bad_event_and_its_reason() -> None:
    events = (
        Event(minutes(2), "Info", "scaling goes on"),
        Event(minutes(1), "Error", "instance creation failed", "insufficient capacity"),
        Event(minutes(0), "Warn", "old news"),
    )
    held = hold(World(hyperpod=[hyperpod(group("Failed", 0, 8))], events={"w1": events}))
    assert str(held.error) == (
        "instance group w1 Failed, 0 of 8 (MinCount 0); last event: instance creation failed: insufficient capacity"
    )


def test_events_are_shown_while_waiting() -> None:
    events = (Event(minutes(1), "Info", "scaling goes on"),)
    held = hold(World(slurm=[SHORT, FULL], hyperpod=[CREATING, READY], events={"w1": events}))
    assert [look.events for look in held.shown] == [events, events, ()]


def test_what_no_state_of_slurms_cluster_holds_is_exit_4() -> None:
    ask = replace(ASK, request=Request(partition="part", nodes=9))
    assert [hold(World(), Hold(mode="slurm"), ask).exit_code] == [4]
    with pytest.raises(CannotFit) as caught:
        flow.plan_possible(FULL, ask)
    assert str(caught.value) == "9 nodes can never start in part: it has 8, with all that is still to come"


def test_a_partition_that_slurm_does_not_know_yet_is_waited_for() -> None:
    none = replace(FULL, partitions=(), nodes=())
    world = World(slurm=[none, FULL], hyperpod=[CREATING, READY])
    held = hold(world)
    assert held.exit_code == 0
    assert held.shown[0].decision == Wait(("Slurm has no partition part yet", "w1 Creating, 4 of 8 (MinCount 8)"))


def test_a_partition_that_nobody_knows_is_a_usage_error() -> None:
    ask = replace(ASK, request=Request(partition="gb300", nodes=8))
    assert hold(World(), ask=ask).exit_code == 2


# --- live plans ----------------------------------------------------------------------------------------------------


def test_a_live_plan_asks_hyperpod_only_where_slurms_nodes_do_not_do() -> None:
    world = World()
    cluster, made = flow.plan_live(world.ports(), ASK)
    assert (cluster, made.fit.now, world.hyperpod_looks) == (FULL, True, 0)


def test_groups_that_name_no_partition_are_known_by_their_instances() -> None:
    cluster = replace(FULL, partitions=tuple(replace(one, default=False) for one in FULL.partitions))
    nameless = replace(CREATING.groups[0], partitions=())
    instances = (Instance("w1", cluster.nodes[0].name, None, running=True),)
    held = hold(World(slurm=[cluster], hyperpod=[hyperpod(nameless)], instances=instances), Hold(wait=False))
    assert held.shown[0].seen is not None
    assert [group.name for group in held.shown[0].seen.groups or ()] == ["w1"]
    assert held.exit_code == 6


def test_a_live_plan_counts_what_is_still_to_come() -> None:
    world = World(slurm=[block_cluster("....")], hyperpod=[CREATING])
    _, made = flow.plan_live(world.ports(), ASK)
    assert (made.fit.ever, made.fit.possible, made.census.coming) == (False, True, 4)


@pytest.mark.parametrize("error", [NotAsked("no cluster"), Transient("throttled"), NoEndpoint("refused")])
def test_a_live_plan_does_without_hyperpod(error: HypSubmitError) -> None:
    _, made = flow.plan_live(World(slurm=[block_cluster("....")], hyperpod=[error]).ports(), ASK)
    assert (made.fit.ever, made.fit.possible) == (False, False)


# --- what is asked -------------------------------------------------------------------------------------------------

SCRIPT = """#!/bin/bash
#SBATCH --nodes=8
#SBATCH --partition=part
#SBATCH --gpus-per-node=4
srun python pretrain_gpt.py --tensor-model-parallel-size 4 --expert-model-parallel-size $EP
"""


def read(
    argv: Sequence[str] = ("dir/train.sh",),
    script: str | None = SCRIPT,
    environment: Mapping[str, str] | None = None,
    framework: str | None = None,
    **sizes: int,
) -> Ask:
    """The ask of a command line and a script."""
    return flow.read_ask(split(argv, {}), script, environment or {}, (MEGATRON, FSDP), framework=framework, sizes=sizes)


def test_the_script_says_what_is_asked() -> None:
    ask = read()
    assert (ask.workload.framework, ask.workload.nodes, ask.workload.gpus_per_node, ask.workload.tp) == (
        "megatron",
        8,
        4,
        4,
    )
    assert ask.workload.sources == {"tp": "train.sh:5", "gpus_per_node": "train.sh:4", "nodes": "train.sh:2"}
    assert (ask.request, ask.framework) == (Request(partition="part"), MEGATRON)
    assert [(question.field, question.flag) for question in ask.workload.open] == [("ep", "--ep")]


def test_the_command_line_wins_over_the_environment_over_the_script() -> None:
    environment = {"SBATCH_PARTITION": "env", "SBATCH_GPUS_PER_NODE": "2", "SBATCH_SEGMENT_SIZE": "4"}
    ask = read(("-N", "4", "--partition=line", "train.sh"), environment=environment)
    assert (ask.workload.nodes, ask.workload.gpus_per_node) == (4, 2)
    assert ask.workload.sources == {
        "tp": "train.sh:5",
        "gpus_per_node": "SBATCH_GPUS_PER_NODE",
        "nodes": "command line",
    }
    assert ask.request == Request(partition="line", segment=4)


def test_a_size_flag_settles_an_open_question() -> None:
    ask = read(ep=8)
    assert (ask.workload.ep, ask.workload.sources["ep"], ask.workload.open) == (8, "--ep", ())


def test_without_a_script_the_flags_say_all() -> None:
    ask = read(("-N4", "-p", "part"), None, framework="megatron", tp=8)
    assert (ask.workload.framework, ask.workload.tp, ask.workload.nodes, ask.request.partition) == (
        "megatron",
        8,
        4,
        "part",
    )


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda: read(framework="deepspeed"), "--framework deepspeed: there are megatron, fsdp"),
        (
            lambda: read(("-N4",), None, tp=4),
            "sizes without a framework: --framework NAME says how its ranks are numbered",
        ),
        (
            lambda: read(("-N4", "-p", "a,b"), None),
            "--partition=a,b (command line): a plan is for one partition, name it",
        ),
        (lambda: read(("-Nmany",), None), "--nodes=many (command line) is not a whole number"),
        (lambda: read(("-N2", "--segment=x"), None), "--segment=x (command line) is not a whole number"),
        (lambda: read(("-N2", "--switches=x@1:00"), None), "--switches=x (command line) is not a whole number"),
    ],
)
def test_what_cannot_be_asked_is_a_usage_error(action: Callable[[], Ask], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        action()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("argv", "request_"),
    [
        (("--segment=4",), Request(segment=4)),
        (("--segment", "none"), Request(segment="none")),
        (("--switches=2",), Request(switches=2)),
        (("--switches=2@01:00:00",), Request(switches=2)),
        (("--switches=none",), Request(switches="none")),
        (("--spread-segments", "--segment=2"), Request(segment=2, spread_segments=True)),
    ],
)
def test_what_sbatch_options_fix(argv: tuple[str, ...], request_: Request) -> None:
    assert read(("-N4", *argv), None).request == request_


def test_a_range_of_nodes_is_planned_at_its_least_and_said() -> None:
    workload = read(("--nodes=2-4",), None).workload
    why = "--nodes=2-4 (command line) is a range, and a segment needs one count: 2 is taken"
    assert (workload.nodes, workload.open) == (2, (Open("nodes", why, "--nodes N"),))


def test_a_heterogeneous_script_is_refused_and_not_taken_for_its_last_component() -> None:
    with pytest.raises(UsageError) as caught:
        read(script="#!/bin/bash\n#SBATCH --nodes=8\n#SBATCH hetjob\n#SBATCH --nodes=2\nsrun x\n")
    assert str(caught.value) == ("train.sh:3: heterogeneous jobs are not planned yet: submit it with sbatch itself")


def test_none_over_an_option_in_the_script_is_refused_for_it_would_not_hold() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=8 --segment=4\nsrun x\n"
    with pytest.raises(UsageError) as caught:
        read(("--segment=none", "train.sh"), script)
    assert str(caught.value) == "--segment none: train.sh:2 says --segment=4, take that line out"


def test_another_component_is_refused_a_colon_among_the_scripts_arguments_is_the_scripts() -> None:
    with pytest.raises(UsageError):
        read(("-N2", ":", "-N4", "x.sh"), None)
    assert read(("-N2", "x.sh", "a", ":", "b"), "srun x\n").workload.nodes == 2


def call(world: World) -> list[str]:
    """The words of the one sbatch that was called, with TOKEN for its token."""
    ((argv, _, token),) = world.submitted
    return [word.replace(token, "TOKEN") for word in argv]


def test_the_comment_of_the_script_is_kept_beside_the_token() -> None:
    script = "#!/bin/bash\n#SBATCH --nodes=8 --partition=part --comment=budget-7\nsrun x\n"
    submitted(world := World(), ask=read(script=script))
    assert "--comment=budget-7 TOKEN" in call(world)


# --- submit --------------------------------------------------------------------------------------------------------


def test_submit_hands_the_job_over_once() -> None:
    line = split(("-J", "run", "-N8", "train.sh", "--lr", "1"), {})
    assert submitted(world := World(), ask=replace(ASK, line=line)) == "42"
    assert call(world) == [
        *("sbatch", "--parsable", "-J", "run", "-N8", "--partition=part", "--segment=4"),
        *("--comment=TOKEN", "train.sh", "--lr", "1"),
    ]
    assert world.submitted[0][1] == {"HOME": "/h"}


def test_a_flat_job_is_submitted_without_a_topology_option() -> None:
    submitted(world := World(slurm=[flat_cluster("........")]))
    assert call(world) == ["sbatch", "--parsable", "--partition=part", "--nodes=8", "--comment=TOKEN", "train.sh"]


def test_with_the_gate_off_nobody_is_waited_for() -> None:
    with pytest.raises(CannotFit):
        submitted(World(), Hold(mode="off"), replace(ASK, request=Request(partition="part", nodes=9)))
    world = World(hyperpod=[CREATING])
    assert submitted(world, Hold(mode="off")) == "42"
    assert (world.slept, world.hyperpod_looks) == ([], 0)


def test_a_mistake_in_the_options_is_said_before_the_wait_and_only_then() -> None:
    world = World(slurm=[SHORT, FULL], hyperpod=[CREATING, READY], mistake=Refused("Invalid --time specification"))
    with pytest.raises(Refused):
        submitted(world)
    assert (world.slept, world.submitted) == ([], [])
    world = World(slurm=[SHORT, SHORT, FULL], hyperpod=[CREATING, CREATING, READY])
    submitted(world)
    assert world.checked == [["sbatch", "--parsable", "train.sh"]]
    submitted(world := World())
    assert world.checked == []


def test_a_slurmctld_that_goes_away_at_sbatch_is_waited_for_and_the_queue_asked_first() -> None:
    world = World(sbatch=[Transient("not submitted, slurmctld is away"), "42"])
    assert submitted(world) == "42"
    tokens = {token for _, _, token in world.submitted}
    assert (len(world.submitted), len(tokens), world.found) == (2, 1, list(tokens))
    assert world.said == ["not submitted, slurmctld is away; still holding"]
    assert len(world.slept) == 1


def test_a_job_that_was_there_after_all_is_not_submitted_again() -> None:
    world = World(sbatch=[Transient("not submitted, slurmctld is away")], queue={"any": "41"})
    assert (submitted(world), len(world.submitted)) == ("41", 1)


@pytest.mark.parametrize("error", [Refused("Invalid qos"), OutcomeUnknown("sbatch gave no answer")])
def test_a_refusal_or_a_doubt_ends_the_hold(error: HypSubmitError) -> None:
    world = World(sbatch=[error])
    with pytest.raises(type(error)):
        submitted(world)
    assert len(world.submitted) == 1


@pytest.mark.parametrize(
    ("groups", "error"),
    [
        ((group("InService", 8, 8, 8),), CannotFit),
        ((group("InService", 0, 0, 0),), WillNotBeReady),
        ((group("Creating", 4, 6, 6),), WillNotBeReady),
        ((group("InService", 8, 8, 8), group("InService", 0, 0, 0, name="w2")), WillNotBeReady),
    ],
)
def test_what_complete_groups_cannot_hold_is_exit_4_what_they_fail_to_become_is_exit_5(
    groups: tuple[InstanceGroup, ...], error: type[HypSubmitError]
) -> None:
    ask = replace(ASK, request=Request(partition="part", nodes=9))
    assert type(hold(World(hyperpod=[hyperpod(*groups)]), ask=ask).error) is error
