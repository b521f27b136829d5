"""The planner: its worked example, what the user may fix, and what holds for every plan."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, TypeVar

import pytest
from factories import FSDP, MEGATRON, NOW, block_cluster, flat_cluster, group, megatron_groups, minutes, tree_cluster
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import megatron_workloads, rows

from hyp_submit.errors import UsageError
from hyp_submit.model import Census, Cluster, Framework, Job, Node, Note, Partition, Plan, Request, Topology, Workload
from hyp_submit.plan import plan
from hyp_submit.workload import check

# Four blocks of 18 with 9, 18, 4 and 16 nodes free; the job of 14 nodes in the third ends in 70 minutes.
EXAMPLE = block_cluster("." * 9 + "#" * 9, "." * 18, "." * 4 + "7" * 14, "." * 16 + "##")


def planned(
    cluster: Cluster,
    nodes: int,
    framework: Framework | None = None,
    request: Mapping[str, Any] | None = None,
    **sizes: Any,
) -> Plan:
    """The plan for so many nodes of the drawn partition."""
    workload = Workload(framework=framework.name if framework else None, **sizes)
    return plan(cluster, workload, Request(nodes=nodes, **(request or {})), framework)


def codes(notes: tuple[Note, ...]) -> list[str]:
    """The codes of notes, in order."""
    return [note.code for note in notes]


def starts(made: Plan) -> dict[int | None, Any]:
    """When each candidate starts."""
    return {candidate.segment: candidate.fit.earliest for candidate in made.candidates}


def places(made: Plan) -> list[tuple[int, str | None, int]]:
    """Segment, block or leaf, and node count of each seat."""
    return [(seat.segment, seat.block or seat.switch, len(seat.nodes)) for seat in made.fit.seats]


# --- the worked example --------------------------------------------------------------------------------------------


def test_the_worked_example_counts_needed_and_free_segments() -> None:
    made = planned(EXAMPLE, 36, MEGATRON, tp=4, cp=3, ep=8, etp=1)
    legal = [candidate for candidate in made.candidates if candidate.legal]
    assert made.inner_nodes == 6
    assert [(candidate.segment, candidate.needed, candidate.free) for candidate in legal] == [
        (18, 2, 1),
        (12, 3, 2),
        (6, 6, 6),
    ]
    assert [candidate.fit.earliest for candidate in legal] == [minutes(70), minutes(70), NOW]


@pytest.mark.parametrize(
    ("patience", "segment"),
    [
        (timedelta(minutes=30), 6),
        (timedelta(minutes=69), 6),
        (timedelta(minutes=70), 18),
        (timedelta(hours=2), 18),
        (timedelta(0), 6),
        (None, 18),
    ],
)
def test_patience_decides_between_soon_and_large(patience: timedelta | None, segment: int) -> None:
    made = planned(EXAMPLE, 36, MEGATRON, {"patience": patience}, tp=4, cp=3, ep=8, etp=1)
    assert (made.segment, made.segments, made.sbatch) == (
        segment,
        36 // segment,
        ("--partition=part", "--nodes=36", f"--segment={segment}"),
    )


def test_illegal_candidates_are_shown_with_the_groups_that_they_split() -> None:
    made = planned(EXAMPLE, 36, MEGATRON, tp=4, cp=3, ep=8, etp=1)
    assert {candidate.segment: candidate.why for candidate in made.candidates if not candidate.legal} == {
        9: "splits EP x ETP (8 GPUs)",
        4: "splits TP x CP (12 GPUs)",
        3: "splits EP x ETP (8 GPUs)",
        2: "splits TP x CP (12 GPUs)",
        1: "splits TP x CP (12 GPUs) and EP x ETP (8 GPUs)",
    }


def test_losers_say_why_and_the_chosen_one_does_not() -> None:
    made = planned(EXAMPLE, 18, request={"patience": timedelta(0)})
    assert {candidate.segment: candidate.why for candidate in made.candidates} == {
        18: None,
        9: "smaller",
        6: "smaller",
        3: "smaller",
        2: "smaller",
        1: "smaller",
    }
    made = planned(EXAMPLE, 36, MEGATRON, tp=4, cp=3, ep=8, etp=1)
    assert {candidate.segment: candidate.why for candidate in made.candidates if candidate.legal} == {
        18: "starts later than --patience allows",
        12: "starts later than --patience allows",
        6: None,
    }


# --- units and what cannot be whole --------------------------------------------------------------------------------

BLOCKS = block_cluster("." * 18, "." * 18, "." * 18)


@pytest.mark.parametrize(
    ("sizes", "unit", "segment"),
    [
        ({"tp": 4, "ep": 18, "etp": 1}, 9, 18),
        ({"tp": 4, "cp": 3, "ep": 8, "etp": 1}, 6, 18),
        ({"tp": 6, "etp": 1}, 3, 18),
        ({"tp": 4, "ep": 18}, 18, 18),
    ],
)
def test_units_of_the_designs_examples(sizes: dict[str, Any], unit: int, segment: int) -> None:
    made = planned(BLOCKS, 36, MEGATRON, **sizes)
    assert (made.inner_nodes, made.segment, codes(made.errors)) == (unit, segment, [])


def test_ep_that_does_not_divide_the_world_is_a_usage_error() -> None:
    with pytest.raises(UsageError) as caught:
        planned(BLOCKS, 36, MEGATRON, tp=4, ep=32, etp=1)
    assert str(caught.value) == (
        "EP 32 = 32 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count"
    )


def test_one_block_that_holds_the_job_is_legal_whatever_the_unit() -> None:
    made = planned(BLOCKS, 10, MEGATRON, tp=4, ep=10, etp=1)
    assert made.inner_nodes == 5
    assert (made.segment, made.candidates[0].legal) == (10, True)
    made = planned(BLOCKS, 8, MEGATRON, tp=4, cp=8, ep=1, etp=1)
    assert (made.segment, made.inner_nodes) == (8, 8)


def test_where_not_all_groups_can_be_whole_the_expert_groups_are() -> None:
    # TP x CP = 144 GPUs need 36 nodes, EP x ETP = 18 need 9.
    made = planned(BLOCKS, 36, MEGATRON, tp=72, cp=2, ep=18, etp=1)
    assert [note for note in made.warnings if note.code == "groups-span-blocks"] == [
        Note(
            "groups-span-blocks",
            "TP x CP (144 GPUs) cannot stay in one block: a segment would need 36 nodes and a block gives 18; "
            "EP x ETP is kept whole",
        )
    ]
    assert [candidate.segment for candidate in made.candidates if candidate.legal] == [18, 9]


def test_no_segment_stands_above_one_where_one_is_the_only_divisor() -> None:
    made = planned(BLOCKS, 37)
    assert [candidate.segment for candidate in made.candidates] == [None, 1]
    assert (made.segment, made.segments, made.sbatch) == (None, None, ("--partition=part", "--nodes=37"))


def test_segment_one_that_starts_as_soon_as_no_segment_is_not_called_later() -> None:
    loser = planned(BLOCKS, 37).candidates[1]
    assert (loser.fit.earliest, loser.why) == (NOW, "smaller")


def test_a_group_larger_than_a_block_spans_the_fewest_blocks() -> None:
    # One group of 144 GPUs: in 50 minutes on two blocks, now on four.
    cluster = block_cluster("." * 9 + "#" * 9, "." * 9 + "5" * 9, "." * 9 + "5" * 9, "." * 9 + "#" * 9)
    made = planned(cluster, 36, MEGATRON, tp=144)
    assert len({seat.block for seat in made.fit.seats}) == 2


@pytest.mark.parametrize("nodes", [18, 36])
def test_an_hsdp_shard_group_larger_than_a_block_is_said(nodes: int) -> None:
    made = planned(BLOCKS, nodes, FSDP, shard=nodes * 4)
    assert ("groups-span-blocks" in codes(made.warnings)) is (nodes > 18)


# --- what the user fixes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "segment", "near"),
    [(20, 3, "1, 2, 4, 5, 10"), (18, 5, "1, 2, 3, 6, 9, 18"), (18, 0, "1, 2, 3, 6, 9, 18")],
)
def test_a_segment_that_does_not_divide_the_nodes_is_a_usage_error(nodes: int, segment: int, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        planned(BLOCKS, nodes, request={"segment": segment})
    assert str(caught.value) == (
        f"--segment={segment} does not divide {nodes} nodes, which Slurm refuses: use one of {near}, "
        "or another node count"
    )


def test_a_fixed_segment_is_the_only_candidate() -> None:
    made = planned(EXAMPLE, 36, request={"segment": 12})
    assert ([candidate.segment for candidate in made.candidates], made.segment, made.fit.now) == ([12], 12, False)


def test_a_fixed_segment_that_splits_groups_is_obeyed_and_said() -> None:
    made = planned(BLOCKS, 36, MEGATRON, {"segment": 4}, tp=4, ep=18, etp=1)
    assert made.segment == 4
    assert made.warnings[0] == Note("segment-splits-groups", "--segment=4 splits EP x ETP (18 GPUs)")


def test_a_fixed_segment_over_the_block_size_is_obeyed_and_said() -> None:
    made = planned(BLOCKS, 20, request={"segment": 20})
    assert (made.segment, made.fit.now, len({seat.block for seat in made.fit.seats})) == (20, True, 2)
    assert "segment-over-block" in codes(made.warnings)


def test_no_segment_can_be_fixed() -> None:
    made = planned(BLOCKS, 36, request={"segment": "none"})
    assert (made.segment, made.sbatch) == (None, ("--partition=part", "--nodes=36"))
    assert places(made) == [(0, "b2", 18), (0, "b3", 18)]


def test_spread_segments_share_no_block_and_are_asked_for() -> None:
    made = planned(BLOCKS, 36, request={"segment": 12, "spread_segments": True})
    assert places(made) == [(0, "b3", 12), (1, "b2", 12), (2, "b1", 12)]
    assert made.sbatch == ("--partition=part", "--nodes=36", "--segment=12", "--spread-segments")
    assert not planned(BLOCKS, 36, request={"segment": 9, "spread_segments": True}).fit.possible


@pytest.mark.parametrize("nodes", [0, -1])
def test_a_job_has_at_least_one_node(nodes: int) -> None:
    with pytest.raises(UsageError) as caught:
        planned(BLOCKS, nodes)
    assert str(caught.value) == f"--nodes {nodes}: a job has at least one node"


def test_a_plan_needs_a_node_count() -> None:
    with pytest.raises(UsageError) as caught:
        plan(BLOCKS, Workload(), Request(partition="part"))
    assert str(caught.value) == "how many nodes? Neither the script nor the command line says: --nodes N"


def test_an_unknown_partition_is_a_usage_error_that_lists_them() -> None:
    with pytest.raises(UsageError) as caught:
        plan(BLOCKS, Workload(), Request(partition="gb300", nodes=2))
    assert str(caught.value) == "no partition 'gb300' in drawn: there are part"


def test_without_a_default_partition_one_must_be_named() -> None:
    cluster = replace(BLOCKS, partitions=(replace(BLOCKS.partitions[0], default=False),))
    with pytest.raises(UsageError) as caught:
        planned(cluster, 2)
    assert str(caught.value) == "no partition named and Slurm has no default one: --partition part"


def test_the_command_lines_nodes_win_over_the_workloads() -> None:
    assert plan(BLOCKS, Workload(nodes=4), Request(nodes=6)).nodes == 6


def test_more_gpus_per_node_than_the_nodes_have_do_not_fit() -> None:
    try:
        possible = planned(BLOCKS, 2, gpus_per_node=8).fit.possible
    except UsageError:
        return
    assert not possible


def mixed() -> Cluster:
    """A flat partition of two nodes without GPUs, two with 4 and two with 8."""
    nodes = tuple(Node(f"n{number}", "IDLE", gpus=gpus) for number, gpus in enumerate((0, 0, 4, 4, 8, 8), start=1))
    names = tuple(node.name for node in nodes)
    return Cluster("mixed", NOW, nodes, (Partition("dev", nodes=names, default=True),))


def test_a_partition_of_mixed_gpu_counts_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        planned(mixed(), 2)
    assert str(caught.value) == (
        "partition dev mixes nodes of 0, 4, 8 GPUs: name a partition of one kind (--partition), "
        "or say which with --gpus-per-node"
    )


def test_gpus_per_node_picks_the_nodes_of_a_mixed_partition() -> None:
    made = planned(mixed(), 2, gpus_per_node=8)
    assert [seat.nodes for seat in made.fit.seats] == [("n5", "n6")]


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_is_not_up_is_said(state: str) -> None:
    made = planned(block_cluster("....", state=state), 2)
    assert any(state in note.message for note in (*made.warnings, *made.errors))


# --- fit -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("drawn", "nodes", "now", "ever", "possible", "earliest"),
    [
        (("....",), 4, True, True, True, NOW),
        (("~~..",), 4, True, True, True, NOW),
        (("..12",), 3, False, True, True, minutes(10)),
        (("..12",), 4, False, True, True, minutes(20)),
        (("..1#",), 4, False, True, True, None),
        (("..1x",), 4, False, False, True, None),
        (("..1!",), 4, False, False, True, None),
        (("....",), 5, False, False, False, None),
        (("...1", "...2"), 4, False, True, True, minutes(10)),
        (("...x", "...9"), 4, False, True, True, minutes(90)),
    ],
)
def test_now_ever_possible_and_earliest(
    drawn: tuple[str, ...], nodes: int, now: bool, ever: bool, possible: bool, earliest: Any
) -> None:
    fit = planned(block_cluster(*drawn), nodes, request={"segment": nodes}).fit
    assert (fit.now, fit.ever, fit.possible, fit.earliest) == (now, ever, possible, earliest)


def test_a_job_past_its_end_does_not_put_the_start_into_the_past() -> None:
    cluster = block_cluster("..1")
    cluster = replace(cluster, jobs=tuple(replace(job, end_time=minutes(-5)) for job in cluster.jobs))
    fit = planned(cluster, 3).fit
    assert (fit.now, fit.earliest) == (False, NOW)


def test_jobs_that_hold_no_nodes_keep_nobody_waiting() -> None:
    cluster = block_cluster("..1")
    ended = replace(cluster.jobs[0], id=2, state="COMPLETED", end_time=None)
    assert planned(replace(cluster, jobs=(ended, *cluster.jobs)), 3).fit.earliest == minutes(10)


def test_jobs_that_wait_already_are_said() -> None:
    waiting = Job(8, "u", "j", "part", "PENDING", node_count=4, reason="Resources")
    held = replace(waiting, id=9, reason="JobHeldUser")
    made = planned(replace(block_cluster("...."), jobs=(waiting, held)), 2)
    assert [note.message for note in made.warnings if note.code == "jobs-ahead"] == [
        "1 job (4 nodes) already wait in part: Slurm may start them first, whatever is free"
    ]
    assert "jobs-ahead" not in codes(planned(replace(block_cluster("...."), jobs=(held,)), 2).warnings)


def test_the_nodes_of_a_suspended_job_are_not_free_though_they_are_idle() -> None:
    cluster = block_cluster("..1")
    nodes = tuple(replace(node, base="IDLE") for node in cluster.nodes)
    suspended = replace(cluster, nodes=nodes, jobs=(replace(cluster.jobs[0], state="SUSPENDED"),))
    fit = planned(suspended, 3).fit
    assert (fit.now, fit.earliest) == (False, minutes(10))


def test_the_last_job_of_a_shared_node_counts() -> None:
    cluster = block_cluster("..1")
    other = replace(cluster.jobs[0], id=2, end_time=minutes(40))
    assert planned(replace(cluster, jobs=(other, *cluster.jobs)), 3).fit.earliest == minutes(40)
    endless = replace(cluster.jobs[0], id=3, end_time=None)
    assert planned(replace(cluster, jobs=(endless, *cluster.jobs)), 3).fit.earliest is None


def test_placement_is_for_the_first_moment_at_which_it_fits() -> None:
    fit = planned(block_cluster("..1#", "x2.."), 3, request={"segment": 3}).fit
    assert [(seat.block, seat.nodes) for seat in fit.seats] == [("b1", ("n1", "n2", "n3"))]
    assert planned(block_cluster("..xx"), 3).fit.seats == ()


def test_instances_still_to_come_make_a_job_possible() -> None:
    coming = (group("Creating", 4, 8, 8),)
    assert planned(block_cluster("....", groups=coming), 8, request={"segment": 4}).fit.possible
    assert not planned(block_cluster("....", groups=coming), 9).fit.possible
    assert planned(block_cluster("..", sizes=[4], groups=coming), 8, request={"segment": 4}).fit.possible


def test_instances_still_to_come_make_a_tree_job_possible() -> None:
    # 8 nodes in two leaves, 4 more to come: 12 nodes need all of them.
    cluster = tree_cluster(["....", "...."], groups=[group("Creating", 8, 12, 12)])
    assert planned(cluster, 4).fit.possible
    assert not planned(cluster, 13).fit.possible


def test_instances_still_to_come_and_those_that_are_there_add_up_on_a_tree() -> None:
    cluster = tree_cluster(["....", "...."], groups=[group("Creating", 8, 12, 12)])
    assert planned(cluster, 12).fit.possible


def test_instances_still_to_come_make_a_flat_job_possible() -> None:
    cluster = flat_cluster("..", groups=[group("Creating", 2, 5, 5)])
    assert [planned(cluster, nodes).fit.possible for nodes in (5, 6)] == [True, False]


def test_nodes_in_no_block_are_said_and_never_used() -> None:
    cluster = block_cluster("....", "....")
    topology = replace(cluster.topologies[0], blocks=cluster.topologies[0].blocks[:1])
    made = planned(replace(cluster, topologies=(topology,)), 5)
    assert (made.fit.possible, made.warnings[0]) == (
        False,
        Note(
            "nodes-in-no-block",
            "4 nodes of part are in no block of its topology: Slurm gives them no job (n5, n6, n7, ...)",
        ),
    )


def test_a_partition_uses_only_its_own_nodes_of_a_block() -> None:
    cluster = block_cluster("....", "....")
    mine = replace(cluster.partitions[0], nodes=("n1", "n2", "n5"))
    made = planned(replace(cluster, partitions=(mine,)), 3, request={"segment": 1})
    assert sorted(name for seat in made.fit.seats for name in seat.nodes) == ["n1", "n2", "n5"]
    assert made.census == Census(total=3, healthy=3, free=3, coming=0)


def test_the_census_counts_nodes_by_what_they_are_good_for() -> None:
    cluster = block_cluster(".~x!", "1#..", groups=[group("Updating", 8, 11, 0)])
    assert planned(cluster, 2).census == Census(total=8, healthy=6, free=4, coming=3)


def test_a_job_that_can_never_fit_says_what_there_is() -> None:
    assert planned(BLOCKS, 60).errors == (
        Note("cannot-fit", "60 nodes can never start in part: it has 54, with all that is still to come"),
    )
    short = block_cluster("...", "...")
    assert planned(short, 6, request={"segment": 6, "spread_segments": True}).errors == ()
    assert planned(block_cluster("....", ".."), 6, request={"segment": 3}).errors == (
        Note("cannot-fit", "2 segments of 3 nodes can never start in part: its blocks hold 1 with every node healthy"),
    )


def test_no_spare_node_is_said_only_where_there_is_none() -> None:
    assert "no-spare" in codes(planned(BLOCKS, 18).warnings)
    made = planned(BLOCKS, 16)
    assert ("no-spare" in codes(made.warnings), made.candidates[0].spare) == (False, 2)


# --- ranks ---------------------------------------------------------------------------------------------------------


def test_scattered_names_split_groups_although_segments_are_whole() -> None:
    # b1 holds n1 n3 n5 n7, b2 holds n2 n4 n6 n8.
    cluster = block_cluster("....", "....", scattered=True)
    made = planned(cluster, 8, MEGATRON, tp=8)
    assert (made.segment, made.group_count, made.group_split) == (4, 4, 4)
    assert made.warnings[-1] == Note(
        "ranks-scattered",
        "Slurm numbers nodes by name: 4 of 4 groups of 8 GPUs would touch more than one block although the segments "
        "are whole",
    )
    tidy = planned(block_cluster("....", "...."), 8, MEGATRON, tp=8)
    assert (tidy.group_split, "ranks-scattered" in codes(tidy.warnings)) == (0, False)


# --- tree and flat -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("nodes", "switches", "leaves"), [(3, 1, ["l2"]), (4, 1, ["l1"]), (6, 2, ["l1", "l2"])])
def test_a_tree_job_asks_for_the_fewest_leaf_switches(nodes: int, switches: int, leaves: list[str]) -> None:
    made = planned(tree_cluster(["....", "..."], ["....", "...."]), nodes)
    assert (made.switches, made.sbatch[2:]) == (switches, (f"--switches={switches}",))
    assert [switch for _, switch, _ in places(made)] == leaves


def test_switches_are_soft_and_the_cap_is_named() -> None:
    made = planned(tree_cluster(["...."], scheduler_parameters={"max_switch_wait": "600"}), 2)
    assert made.warnings == (
        Note(
            "switches-soft",
            "--switches=1 holds for 600 s (max_switch_wait); then Slurm starts the job on more switches",
        ),
    )


def test_no_switches_can_be_fixed() -> None:
    made = planned(tree_cluster(["....", "...."]), 2, request={"switches": "none"})
    assert (made.switches, made.sbatch, made.warnings) == (None, ("--partition=part", "--nodes=2"), ())


def test_a_fixed_number_of_switches_is_a_hard_limit_of_the_plan() -> None:
    cluster = tree_cluster(["...#", "...#"], ["....", "...."])
    assert not planned(cluster, 5, request={"switches": 1}).fit.possible
    made = planned(cluster, 8, request={"switches": 2})
    assert (made.switches, made.fit.now, places(made)) == (2, True, [(0, "l3", 4), (0, "l4", 4)])


def test_a_segment_on_a_tree_is_said_to_have_no_effect() -> None:
    made = planned(tree_cluster(["...."]), 2, request={"segment": 2})
    assert made.warnings[0] == Note("segment-ignored", "--segment has no effect: part has a tree topology")
    assert made.segment is None


def test_switches_on_blocks_are_said_to_have_no_effect() -> None:
    made = planned(BLOCKS, 2, request={"switches": 1})
    assert Note("switches-ignored", "--switches has no effect: part has a block topology") in made.warnings
    assert made.switches is None


def test_a_tree_whose_switches_run_in_a_circle_ends() -> None:
    cluster = tree_cluster(["....", "...."])
    looped = [
        replace(one, children=(*one.children, "root")) if one.children else one
        for one in cluster.topologies[0].switches
    ]
    made = planned(replace(cluster, topologies=(replace(cluster.topologies[0], switches=tuple(looped)),)), 6)
    assert made.fit.now


def test_a_flat_partition_gets_no_option_and_one_warning() -> None:
    made = planned(flat_cluster("...", gpus=8), 2)
    assert (made.sbatch, codes(made.warnings)) == (("--partition=part", "--nodes=2"), ["flat"])
    assert planned(flat_cluster("...", gpus=0), 2).warnings == ()
    assert planned(flat_cluster("...", gpus=8), 1).warnings == ()


def test_options_without_effect_on_a_flat_partition_are_said() -> None:
    made = planned(flat_cluster("..."), 2, request={"segment": 2, "switches": 1})
    assert made.warnings == (
        Note("option-ignored", "--segment has no effect: part has no topology"),
        Note("option-ignored", "--switches has no effect: part has no topology"),
    )


def test_an_empty_partition_holds_nothing() -> None:
    cluster = Cluster("empty", NOW, partitions=(Partition("part", topology="topo", default=True),))
    for topology in (Topology("topo", "block", (18,)), Topology("topo", "tree"), Topology("topo", "flat")):
        made = planned(replace(cluster, topologies=(topology,)), 2)
        assert (made.fit.possible, codes(made.errors)) == (False, ["cannot-fit"])


# --- properties ----------------------------------------------------------------------------------------------------


T = TypeVar("T")


def shuffled(cluster: Cluster, seed: int) -> Cluster:
    """The same cluster, its jobs, partitions and each place's nodes in another order."""
    random = Random(seed)  # noqa: S311  a test's own order

    def mix(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(random.sample(items, len(items)))

    return replace(
        cluster,
        jobs=mix(cluster.jobs),
        partitions=mix(cluster.partitions),
        topologies=tuple(
            replace(
                one,
                blocks=tuple(replace(block, nodes=mix(block.nodes)) for block in one.blocks),
                switches=tuple(replace(switch, nodes=mix(switch.nodes)) for switch in one.switches),
            )
            for one in cluster.topologies
        ),
    )


@st.composite
def asks(draw: st.DrawFn) -> tuple[Cluster, Request]:
    """A drawn cluster of any kind and a request for it that is no usage error."""
    drawn, nodes = draw(rows), draw(st.integers(1, 16))
    divisors = [size for size in range(1, nodes + 1) if nodes % size == 0]
    kind = draw(st.sampled_from(["block", "tree", "flat"]))
    scattered = draw(st.booleans())
    cluster = {
        "block": lambda: block_cluster(*drawn, scattered=scattered),
        "tree": lambda: tree_cluster(drawn[:2], drawn[2:]) if drawn[2:] else tree_cluster(drawn),
        "flat": lambda: flat_cluster("".join(drawn)),
    }[kind]()
    request = Request(
        nodes=nodes,
        segment=draw(st.sampled_from([None, None, "none", *divisors])),
        spread_segments=draw(st.booleans()),
        switches=draw(st.sampled_from([None, None, "none", 1, 2, 3])),
        patience=draw(st.sampled_from([None, timedelta(0), timedelta(minutes=30)])),
    )
    return cluster, request


@given(asks())
@settings(deadline=None, max_examples=250)
def test_a_placement_takes_usable_nodes_once_and_exactly_as_many_as_asked(ask: tuple[Cluster, Request]) -> None:
    cluster, request = ask
    made = plan(cluster, Workload(), request)
    taken = [name for seat in made.fit.seats for name in seat.nodes]
    assert len(taken) == len(set(taken)) == (request.nodes if made.fit.ever else 0)
    assert all(cluster.node[name].healthy for name in taken)
    if made.fit.now:
        assert all(cluster.node[name].free for name in taken)
    for seat in made.fit.seats:
        home = [block.nodes for block in made.topology.blocks if block.name == seat.block]
        home += [switch.nodes for switch in made.topology.switches if switch.name == seat.switch]
        assert made.topology.kind == "flat" or set(seat.nodes) <= set(home[0])


@given(asks())
@settings(deadline=None, max_examples=250)
def test_now_implies_ever_implies_possible(ask: tuple[Cluster, Request]) -> None:
    made = plan(ask[0], Workload(), ask[1])
    for fit in [made.fit, *(candidate.fit for candidate in made.candidates)]:
        assert fit.now <= fit.ever <= fit.possible
        assert not fit.now or fit.earliest == NOW
        assert fit.earliest is None or (fit.ever and fit.earliest >= NOW)
        assert bool(fit.seats) == fit.ever
    assert (codes(made.errors) == ["cannot-fit"]) == (not made.fit.possible)


@given(asks(), st.integers(0, 2**16))
@settings(deadline=None, max_examples=150)
def test_the_order_of_the_input_does_not_matter(ask: tuple[Cluster, Request], seed: int) -> None:
    cluster, request = ask
    made, other = plan(cluster, Workload(), request), plan(shuffled(cluster, seed), Workload(), request)
    assert replace(other, topology=made.topology) == made


@given(asks())
@settings(deadline=None, max_examples=150)
def test_earliest_is_the_first_moment_at_which_it_would_fit(ask: tuple[Cluster, Request]) -> None:
    """Held against the cluster as it will be then, and a minute before."""
    cluster, request = ask
    made = plan(cluster, Workload(), request)
    fixed = replace(request, segment=made.segment or "none", switches=made.switches or "none")

    def fits_at(end: float) -> bool:
        ended = {job.nodes[0] for job in cluster.jobs if job.end_time is not None and job.end_time <= minutes(end)}
        nodes = [replace(node, base="IDLE") if node.name in ended else node for node in cluster.nodes]
        return plan(replace(cluster, nodes=tuple(nodes), jobs=()), Workload(), fixed).fit.now

    if made.fit.earliest is not None and not made.fit.now:
        end = (made.fit.earliest - NOW) / timedelta(minutes=1)
        assert (fits_at(end), fits_at(end - 1)) == (True, False)
    elif not made.fit.now:
        assert not fits_at(1000)


@given(megatron_workloads(), st.sampled_from([2, 4, 6, 8, 9, 12, 16, 18, 24, 36]))
@settings(deadline=None, max_examples=200)
def test_the_chosen_segment_keeps_every_group_whole_rank_by_rank(sizes: Workload, nodes: int) -> None:
    assume(not check(replace(sizes, nodes=nodes, gpus_per_node=4), MEGATRON))
    check_whole(sizes, nodes)


@pytest.mark.parametrize(
    "sizes",
    [Workload(tp=4, ep=18, etp=1), Workload(tp=4, cp=3, ep=8, etp=1), Workload(tp=6, etp=1), Workload(tp=6)],
)
def test_the_designs_examples_are_whole_rank_by_rank(sizes: Workload) -> None:
    assert check_whole(sizes, 36)


def check_whole(sizes: Workload, nodes: int) -> bool:
    """Assert that the plan, ranks numbered block by block, splits no group; False where it says that it has to."""
    cluster = block_cluster(*["." * 18] * 4, scattered=True)
    made = plan(cluster, sizes, Request(nodes=nodes), MEGATRON)
    assert made.segment is not None
    assert nodes % made.segment == 0
    assert made.segment <= 18
    if "groups-span-blocks" in codes(made.warnings):
        return False
    block_of_node = [seat.block for seat in made.fit.seats for _ in seat.nodes]
    assert len(block_of_node) == nodes
    for ranks in megatron_groups(made.workload, nodes * 4):
        assert len({block_of_node[rank // 4] for rank in ranks}) == 1
    return True
