"""The gate's judgement, each rule of HyperPod's behaviour a row."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from factories import NOW, group

from hyp_submit.gate import Decision, Failed, Latch, Observation, Ready, Require, Wait, look
from hyp_submit.model import Fit, InstanceGroup

FITS = Fit(now=True, ever=True, possible=True, earliest=NOW)
NOT_YET = Fit(now=False, ever=False, possible=True, earliest=None)
NEVER = Fit(now=False, ever=False, possible=False, earliest=None)


def seen(
    *groups: InstanceGroup,
    nodes: int = 8,
    usable: int = 8,
    fit: Fit | None = FITS,
    state: str | None = "UP",
    cluster: str | None = "InService",
) -> Observation:
    """What one look at the partition `part` found."""
    return Observation(
        at=NOW,
        nodes=nodes,
        partition="part",
        partition_state=state,
        registered=usable,
        usable=usable,
        fit=fit,
        groups=groups,
        cluster_status=cluster,
    )


def slurm_alone(usable: int = 8, fit: Fit | None = FITS, state: str | None = "UP") -> Observation:
    """The same where HyperPod is not asked."""
    return replace(seen(usable=usable, fit=fit, state=state), groups=None, cluster_status=None)


def looks(observations: Sequence[Observation], require: Require = "all") -> list[Decision]:
    """The decisions of a row of looks."""
    latch, decisions = Latch(), []
    for observation in observations:
        decision, latch = look(observation, latch, require)
        decisions.append(decision)
    return decisions


def kinds(observations: Sequence[Observation], require: Require = "all") -> list[str]:
    """The same as words: ready, wait, failed."""
    return [type(decision).__name__.lower() for decision in looks(observations, require)]


GOOD = seen(group())


@pytest.mark.parametrize(
    ("observation", "decision"),
    [
        pytest.param(GOOD, Ready(), id="ready at the first look costs no second"),
        pytest.param(seen(group(min_=0)), Ready(), id="MinCount absent is 0"),
        pytest.param(seen(group(current=6, target=8, min_=8)), Ready(), id="dip under MinCount, nodes enough"),
        pytest.param(seen(group("Degraded", current=6, min_=8)), Ready(), id="Degraded, nodes enough"),
        pytest.param(seen(), Ready(), id="no group feeds the partition"),
        pytest.param(
            seen(group("Degraded"), usable=7, fit=NOT_YET), Wait(("Slurm has 7 of the 8 nodes",)), id="Degraded"
        ),
        pytest.param(
            seen(group(current=7, min_=8), usable=7, fit=NOT_YET),
            Wait(("Slurm has 7 of the 8 nodes",)),
            id="dip under MinCount, nodes lacking",
        ),
        pytest.param(
            seen(group(), fit=NOT_YET),
            Wait(("8 usable nodes, but not where the plan needs them",)),
            id="enough nodes in the wrong places",
        ),
        pytest.param(
            seen(group("Creating", current=8, target=16, min_=16)),
            Wait(("w1 Creating, 8 of 16 (MinCount 16)",)),
            id="Creating waits although the job would fit",
        ),
        pytest.param(
            seen(group("Updating", current=8)), Wait(("w1 Updating, 8 of 8 (MinCount 0)",)), id="Updating waits"
        ),
        pytest.param(
            seen(group("SystemUpdating")), Wait(("w1 SystemUpdating, 8 of 8 (MinCount 0)",)), id="patching waits"
        ),
        pytest.param(
            seen(group("Rebalancing")), Wait(("w1 Rebalancing, 8 of 8 (MinCount 0)",)), id="an unknown status waits"
        ),
        pytest.param(seen(group(), state="DOWN"), Wait(("Slurm's partition part is DOWN",)), id="partition not UP"),
        pytest.param(
            seen(group(), state=None, usable=0, fit=None),
            Wait(("Slurm has no partition part yet",)),
            id="partition not there yet",
        ),
        pytest.param(
            seen(group("Creating", current=4, min_=8), usable=4, fit=NOT_YET),
            Wait(("Slurm has 4 of the 8 nodes", "w1 Creating, 4 of 8 (MinCount 8)")),
            id="Slurm's side is named first",
        ),
        pytest.param(
            seen(group("Failed", current=3)), Failed("instance group w1 Failed, 3 of 8 (MinCount 0)"), id="Failed"
        ),
        pytest.param(
            seen(group(), group("Deleting", name="w2")),
            Failed("instance group w2 Deleting, 8 of 8 (MinCount 0)"),
            id="Deleting, although another group would do",
        ),
        pytest.param(seen(group(), cluster="Failed"), Failed("the HyperPod cluster is Failed"), id="cluster Failed"),
        pytest.param(seen(group(), cluster="Deleting"), Failed("the HyperPod cluster is Deleting"), id="cluster gone"),
        pytest.param(seen(group(), cluster="Updating"), Ready(), id="a cluster that updates other groups"),
        pytest.param(
            seen(group("InService", 0, 0), usable=0, fit=NEVER),
            Failed("the instance groups of part aim at 0 instances, the job needs 8"),
            id="first look after the rollback of a new group",
        ),
        pytest.param(
            seen(group("Creating", 0, 4, 4), group("Creating", 0, 3, 3, name="w2"), usable=0, fit=NEVER),
            Failed("the instance groups of part aim at 7 instances, the job needs 8"),
            id="targets together too low",
        ),
        pytest.param(
            seen(group("Creating", 0, 4), group("Creating", 0, 4, name="w2"), usable=0, fit=NOT_YET),
            Wait(
                (
                    "Slurm has 0 of the 8 nodes",
                    "w1 Creating, 0 of 4 (MinCount 0)",
                    "w2 Creating, 0 of 4 (MinCount 0)",
                )
            ),
            id="targets together enough",
        ),
        pytest.param(
            seen(group("Creating"), fit=NEVER), Failed("part can no longer hold the job, even complete"), id="no room"
        ),
        pytest.param(slurm_alone(), Ready(), id="Slurm alone: ready"),
        pytest.param(
            slurm_alone(usable=3, fit=NOT_YET), Wait(("Slurm has 3 of the 8 nodes",)), id="Slurm alone: short"
        ),
        pytest.param(
            slurm_alone(state="INACTIVE"), Wait(("Slurm's partition part is INACTIVE",)), id="Slurm alone: partition"
        ),
    ],
)
def test_the_first_look(observation: Observation, decision: Decision) -> None:
    assert looks([observation]) == [decision]


@pytest.mark.parametrize(
    ("require", "groups", "decision"),
    [
        ("all", (group(), group("Creating", 0, 8, name="w2")), Wait(("w2 Creating, 0 of 8 (MinCount 0)",))),
        ("all", (group(current=8, target=12),), Ready()),
        ("target", (group(current=8, target=12),), Wait(("w1 InService, 8 of 12 (MinCount 0)",))),
        ("target", (group(current=12, target=12),), Ready()),
        ("target", (group(current=13, target=12),), Wait(("w1 InService, 13 of 12 (MinCount 0), scaling down",))),
        ("all", (group(current=13, target=12),), Wait(("w1 InService, 13 of 12 (MinCount 0), scaling down",))),
        ("target", (group("Creating", 8, 8),), Wait(("w1 Creating, 8 of 8 (MinCount 0)",))),
    ],
)
def test_require(require: Require, groups: tuple[InstanceGroup, ...], decision: Decision) -> None:
    assert looks([seen(*groups)], require) == [decision]


WAITING = seen(group("Creating", 4, 8, 8), usable=4, fit=NOT_YET)


@pytest.mark.parametrize(
    ("observations", "decisions"),
    [
        pytest.param([GOOD, GOOD], ["ready", "ready"], id="no wait, no second look"),
        pytest.param([WAITING, GOOD, GOOD], ["wait", "wait", "ready"], id="after a wait two good looks"),
        pytest.param(
            [WAITING, GOOD, WAITING, GOOD, GOOD], ["wait", "wait", "wait", "wait", "ready"], id="two in a row, not two"
        ),
        pytest.param([WAITING, seen()], ["wait", "failed"], id="a vanished group"),
        pytest.param(
            [
                seen(group("Creating", 0, 8, 8), group(name="w2")),
                seen(group("Creating", 0, 8, 8), group(name="w2"), usable=16),
            ],
            ["wait", "wait"],
            id="a group that stays Creating",
        ),
        pytest.param(
            [WAITING, seen(group("InService", 4, 8, 0), usable=8), seen(group("InService", 8, 8, 0))],
            ["wait", "wait", "ready"],
            id="MinCount lowered by a person, target kept",
        ),
        pytest.param(
            [seen(group("Updating", 10, 36, 36)), *[seen(group("InService", 12, 12, 12), usable=12)] * 2],
            ["wait", "wait", "ready"],
            id="target lowered, still enough for the job",
        ),
        pytest.param(
            [WAITING, seen(group("Updating", 4, 16, 16), usable=4, fit=NOT_YET)], ["wait", "wait"], id="target raised"
        ),
    ],
)
def test_a_row_of_looks(observations: list[Observation], decisions: list[str]) -> None:
    assert kinds(observations) == decisions


def test_the_last_look_before_ready_says_so() -> None:
    assert looks([WAITING, GOOD])[1] == Wait(("ready; one more look to be sure",))


def test_a_new_group_that_is_rolled_back_ends_the_wait() -> None:
    after = seen(group("InService", 4, 0, 0), usable=4, fit=NOT_YET)
    assert looks([WAITING, after])[1] == Failed(
        "the instance groups of part aim at 0 instances, the job needs 8; instance group w1 was rolled back (or "
        "lowered by a person): MinCount 8 -> 0, TargetCount 8 -> 0; it is InService with 4 instances"
    )


def test_an_existing_group_that_is_rolled_back_ends_the_wait_with_its_last_good_counts() -> None:
    before = seen(group("Updating", 10, 36, 30), nodes=30, usable=10, fit=NOT_YET)
    after = seen(group("InService", 20, 18, 18), nodes=30, usable=18, fit=NOT_YET)
    assert looks([before, after])[1] == Failed(
        "the instance groups of part aim at 18 instances, the job needs 30; instance group w1 was rolled back (or "
        "lowered by a person): MinCount 30 -> 18, TargetCount 36 -> 18; it is InService with 20 instances"
    )


def test_a_rollback_is_remembered_from_the_highest_counts_seen() -> None:
    row = [seen(group("Updating", 4, target, 4), usable=4, fit=NOT_YET) for target in (8, 20, 8)]
    end = seen(group("InService", 4, 4, 4), usable=4, fit=NOT_YET)
    assert looks([*row, end])[3] == Failed(
        "the instance groups of part aim at 4 instances, the job needs 8; instance group w1 was rolled back (or "
        "lowered by a person): MinCount 4 -> 4, TargetCount 20 -> 4; it is InService with 4 instances"
    )


def test_a_vanished_group_is_named() -> None:
    assert looks([WAITING, seen(group(name="w2"))])[1] == Failed("instance group w1 is gone from the cluster")


def test_a_cluster_that_rolls_back_is_not_ready() -> None:
    assert kinds([seen(group(), cluster="RollingBack")]) == ["wait"]
