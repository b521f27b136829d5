"""Parallel sizes -> groups and unit, held to the ranks themselves: the grids are numbered one by one."""

from dataclasses import replace

import pytest
from factories import FSDP, MEGATRON, megatron_groups
from hypothesis import assume, given, settings
from strategies import megatron_workloads

from hyp_submit.model import Group, Note, Workload
from hyp_submit.workload import check, complete, expert_groups, groups, has_sizes, unit, with_size, world_size


def whole(sizes: Workload, world: int, gpus: int, segment: int) -> bool:
    """Whether no group leaves its segment."""
    return all(len({rank // gpus // segment for rank in ranks}) == 1 for ranks in megatron_groups(sizes, world))


def sized(nodes: int | None = None, gpus: int | None = 4, **sizes: int) -> Workload:
    """A Megatron workload."""
    made = Workload(framework="megatron", nodes=nodes, gpus_per_node=gpus)
    for name, size in sizes.items():
        made = with_size(made, name, size, "test")
    return made


@pytest.mark.parametrize(
    ("sizes", "found", "nodes"),
    [
        ({"tp": 4, "ep": 18, "etp": 1}, [("TP x CP", 4), ("EP x ETP", 18)], 9),
        ({"tp": 4, "cp": 3, "ep": 8, "etp": 1}, [("TP x CP", 12), ("EP x ETP", 8)], 6),
        ({"tp": 6, "etp": 1}, [("TP x CP", 6), ("EP x ETP", 1)], 3),
        ({"tp": 4}, [("TP x CP", 4)], 1),
        ({"tp": 2, "ep": 8, "etp": 2}, [("TP x CP", 2), ("EP x ETP", 16)], 4),
        ({"tp": 2, "ep": 8, "etp": 1}, [("TP x CP", 2), ("EP x ETP", 8)], 2),
        ({"pp": 8}, [], 1),
        ({}, [], 1),
    ],
)
def test_groups_and_unit(sizes: dict[str, int], found: list[tuple[str, int]], nodes: int) -> None:
    of = groups(sized(36, **sizes), MEGATRON)
    assert (of, unit(of, 4)) == (tuple(Group(name, gpus) for name, gpus in found), nodes)


def test_pp_inside_joins_the_dense_group_only() -> None:
    of = groups(replace(sized(36, tp=4, cp=2, pp=3, ep=8, etp=1), pp_inside=True), MEGATRON)
    assert of == (Group("TP x CP x PP", 24), Group("EP x ETP", 8))


def test_the_shard_group_is_fsdps_only_group() -> None:
    assert groups(sized(16, shard=64), FSDP) == (Group("SHARD", 64),)
    assert groups(sized(16, tp=4), FSDP) == ()


def test_without_a_framework_nothing_is_known_of_groups() -> None:
    assert groups(sized(16, tp=4), None) == ()
    assert complete(sized(16, tp=4), None) == sized(16, tp=4)
    assert check(sized(16, tp=5), None) == ()


def test_unit_without_gpus_is_one() -> None:
    assert unit((Group("TP x CP", 8),), 0) == 1
    assert unit((), 4) == 1


def test_the_expert_group_is_the_one_kept_whole() -> None:
    of = groups(sized(36, tp=4, ep=18, etp=1), MEGATRON)
    assert expert_groups(MEGATRON, of) == (Group("EP x ETP", 18),)
    assert expert_groups(FSDP, of) == ()
    assert expert_groups(None, of) == ()


def test_etp_defaults_to_tp_and_dp_follows_from_the_world() -> None:
    done = complete(sized(36, tp=4, pp=2, ep=9), MEGATRON)
    assert (done.etp, done.dp) == (4, 18)
    assert done.sources == {
        "tp": "test",
        "pp": "test",
        "ep": "test",
        "etp": "default (= TP)",
        "dp": "world / (TP x CP x PP)",
    }


@pytest.mark.parametrize(
    "known", [sized(None, tp=4), sized(36, None, tp=4), sized(0, tp=4), sized(36, 0, tp=4), sized(36), sized(36, tp=5)]
)
def test_dp_stays_open_where_it_does_not_follow(known: Workload) -> None:
    assert complete(known, MEGATRON).dp is None


def test_what_is_given_is_never_overwritten() -> None:
    given_ = sized(36, tp=4, etp=1, dp=7)
    assert complete(given_, MEGATRON) == given_


def test_world_size_needs_nodes_and_gpus() -> None:
    assert [world_size(one) for one in (sized(36), sized(), sized(36, None), sized(36, 0))] == [144, None, None, None]


def test_has_sizes() -> None:
    assert [has_sizes(sized(36)), has_sizes(sized(36, shard=8))] == [False, True]


@pytest.mark.parametrize(
    ("sizes", "messages"),
    [
        ({"tp": 4, "ep": 18, "etp": 1}, []),
        ({"tp": 8}, []),
        (
            {"ep": 32, "etp": 1},
            ["EP 32 = 32 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count"],
        ),
        (
            {"tp": 5, "pp": 2},
            ["TP 5 x PP 2 = 10 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count"],
        ),
        (
            {"tp": 288},
            ["TP 288 = 288 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count"],
        ),
    ],
)
def test_sizes_that_do_not_divide_the_world_are_said(sizes: dict[str, int], messages: list[str]) -> None:
    assert check(sized(36, **sizes), MEGATRON) == tuple(Note("sizes-do-not-divide", text) for text in messages)


def test_pp_is_named_once_where_it_is_inside() -> None:
    assert [note.message for note in check(replace(sized(36, tp=4, pp=5), pp_inside=True), MEGATRON)] == [
        "TP 4 x PP 5 = 20 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count",
        "PP 5 = 5 GPUs does not divide the 144 GPUs of 36 nodes x 4: change the sizes or the node count",
    ]


@given(megatron_workloads())
@settings(deadline=None, max_examples=150)
def test_a_segment_keeps_every_group_whole_exactly_when_the_unit_divides_it(drawn: Workload) -> None:
    nodes, gpus = 36, 4
    sizes = replace(drawn, nodes=nodes, gpus_per_node=gpus)
    assume(not check(sizes, MEGATRON))
    needed = unit(groups(sizes, MEGATRON), gpus)
    for segment in (size for size in range(1, nodes) if nodes % size == 0):
        assert whole(sizes, nodes * gpus, gpus, segment) == (segment % needed == 0), segment


@pytest.mark.parametrize(
    ("sizes", "segment", "kept"),
    [
        (sized(tp=4, ep=18, etp=1), 9, True),
        (sized(tp=4, ep=18, etp=1), 6, False),
        (sized(tp=4, cp=3, ep=8, etp=1), 6, True),
        (sized(tp=4, cp=3, ep=8, etp=1), 3, False),
        (sized(tp=6, etp=1), 3, True),
        (sized(tp=6, etp=1), 2, False),
    ],
)
def test_the_designs_examples_rank_by_rank(sizes: Workload, segment: int, kept: bool) -> None:
    assert whole(sizes, 144, 4, segment) is kept
