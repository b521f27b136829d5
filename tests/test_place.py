"""The placement rule by itself: the worked example of its docstring, and what holds for every question."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Placement, placements

from hyp_submit.place import place_blocks, place_tree, whole_segments

FREE = [9, 18, 4, 16]
"""The worked example's blocks of 18."""


def test_segments_go_to_the_tightest_block_that_holds_them() -> None:
    assert place_blocks(FREE, [4] * 5, [18]) == [{2: 4}, {0: 4}, {0: 4}, {3: 4}, {3: 4}]


def test_spread_segments_share_no_block() -> None:
    assert place_blocks(FREE, [4] * 4, [18], spread=True) == [{2: 4}, {0: 4}, {3: 4}, {1: 4}]
    assert place_blocks(FREE, [4] * 5, [18], spread=True) is None


def test_a_piece_larger_than_a_block_takes_the_fewest_blocks_whole() -> None:
    assert place_blocks(FREE, [30], [18]) == [{1: 18, 3: 12}]
    assert place_blocks(FREE, [35], [18]) is None


def test_a_job_without_a_segment_that_fits_a_block_stays_in_one() -> None:
    assert place_blocks([9, 9], [10], [18]) is None
    assert place_blocks([9, 10], [10], [18]) == [{1: 10}]


def test_the_later_block_wins_a_tie() -> None:
    assert place_blocks([5, 5, 7], [5], [18]) == [{1: 5}]


def test_a_segment_larger_than_the_base_block_crosses_it() -> None:
    assert place_blocks([18, 2, 0], [20], [18]) == [{0: 18, 1: 2}]


def test_higher_levels_keep_a_piece_in_an_aligned_run_of_blocks() -> None:
    # 18 + 18 free, but not in the same aligned pair of blocks.
    assert place_blocks([18, 0, 18, 0], [36], [18]) == [{2: 18, 0: 18}]
    assert place_blocks([18, 0, 18, 0], [36], [18, 36]) is None
    assert place_blocks([18, 0, 18, 18], [36], [18, 36]) == [{3: 18, 2: 18}]


def test_no_blocks_hold_nothing() -> None:
    assert place_blocks([], [1], [18]) is None
    assert place_blocks([], [], [18]) == []


@given(placements())
@settings(deadline=None, max_examples=300)
def test_a_placement_takes_exactly_what_is_asked_and_no_more_than_is_free(ask: Placement) -> None:
    placed = place_blocks(ask.free, ask.pieces, [ask.base], spread=ask.spread)
    if placed is None:
        return
    assert [sum(taken.values()) for taken in placed] == ask.pieces
    assert all(count > 0 for taken in placed for count in taken.values())
    for block, free in enumerate(ask.free):
        assert sum(taken.get(block, 0) for taken in placed) <= free
    if ask.pieces[0] <= ask.base:
        assert [len(taken) for taken in placed] == [1] * len(placed)
    else:
        assert all(len(taken) <= -(-piece // ask.base) for taken, piece in zip(placed, ask.pieces, strict=True))
    if ask.spread:
        assert all(not one.keys() & other.keys() for one, other in combinations(placed, 2))


@given(placements())
@settings(deadline=None, max_examples=300)
def test_segments_within_a_block_fit_exactly_when_counting_says_so(ask: Placement) -> None:
    piece, count = ask.pieces[0], len(ask.pieces)
    if piece > ask.base:
        return
    room = sum(free >= piece if ask.spread else free // piece for free in ask.free)
    assert (place_blocks(ask.free, ask.pieces, [ask.base], spread=ask.spread) is not None) == (room >= count)


@given(placements(), st.integers(0, 5))
@settings(deadline=None, max_examples=300)
def test_freeing_a_node_never_makes_a_job_not_fit(ask: Placement, which: int) -> None:
    freed = list(ask.free)
    freed[which % len(freed)] = min(ask.base, freed[which % len(freed)] + 1)
    if place_blocks(ask.free, ask.pieces, [ask.base], spread=ask.spread) is not None:
        assert place_blocks(freed, ask.pieces, [ask.base], spread=ask.spread) is not None


@pytest.mark.parametrize(
    ("free", "segment", "base", "whole"),
    [
        ([9, 18, 4, 16], 18, 18, 1),
        ([9, 18, 4, 16], 12, 18, 2),
        ([9, 18, 4, 16], 6, 18, 6),
        ([9, 18, 4, 16], 4, 18, 2 + 4 + 1 + 4),
        ([9, 18, 4, 16], 36, 18, 1),
        ([], 4, 18, 0),
    ],
)
def test_whole_segments(free: list[int], segment: int, base: int, whole: int) -> None:
    assert whole_segments(free, segment, base) == whole


# --- trees ---------------------------------------------------------------------------------------------------------

SPINES = [[0, 1], [2, 3], [0, 1, 2, 3]]
"""Two spines of two leaves under a root."""


def test_a_job_goes_to_the_tightest_leaf_the_first_on_a_tie() -> None:
    assert place_tree([4, 3, 3, 2], 3, SPINES) == {1: 3}


def test_a_job_larger_than_a_leaf_goes_under_the_tightest_spine() -> None:
    assert place_tree([4, 4, 4, 2], 6, SPINES) == {2: 4, 3: 2}


def test_a_job_larger_than_a_spine_takes_the_fewest_leaves_of_the_root() -> None:
    assert place_tree([4, 4, 1, 4], 9, SPINES) == {0: 4, 1: 4, 2: 1}


def test_a_job_larger_than_the_tree_has_no_place() -> None:
    assert place_tree([4, 4, 1, 4], 14, SPINES) is None
    assert place_tree([], 1, []) is None


def test_switches_limit_the_leaves() -> None:
    assert place_tree([4, 4, 4, 4], 8, SPINES, most_leaves=2) == {1: 4, 0: 4}
    assert place_tree([4, 4, 4, 4], 9, SPINES, most_leaves=2) is None
    assert place_tree([4, 4, 4, 4], 1, SPINES, most_leaves=0) is None


@given(
    st.lists(st.integers(0, 5), min_size=4, max_size=4),
    st.integers(1, 22),
    st.one_of(st.none(), st.integers(1, 4)),
)
@settings(deadline=None, max_examples=300)
def test_a_tree_placement_exists_exactly_when_some_leaves_hold_the_job(
    free: list[int], wanted: int, most: int | None
) -> None:
    taken = place_tree(free, wanted, SPINES, most_leaves=most)
    best = sum(sorted(free, reverse=True)[:most])
    assert (taken is not None) == (best >= wanted)
    if taken is not None:
        assert sum(taken.values()) == wanted
        assert all(0 < count <= free[leaf] for leaf, count in taken.items())
        assert most is None or len(taken) <= most
