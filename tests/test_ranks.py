"""Which groups of consecutive ranks are split over blocks."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hyp_submit.ranks import count_split


@pytest.mark.parametrize(
    ("order", "gpus", "group", "split"),
    [
        (["a1", "a2", "b1", "b2"], 4, 8, 0),
        (["a1", "b1", "a2", "b2"], 4, 8, 2),
        (["a1", "a2", "b1", "b2"], 4, 16, 1),
        (["a1", "a2", "b1", "b2"], 4, 4, 0),
        (["a1", "b1", "b2", "b3"], 4, 6, 1),  # ranks 0-5 end in the middle of b1
        (["a1", "b1", "b2"], 4, 8, 1),  # the last group is not full
        (["a1", "a2"], 4, 0, 0),
        (["a1", "b1"], 0, 8, 0),
        ([], 4, 8, 0),
        (["a1", "c9"], 4, 8, 1),  # a node in no block
        (["c8", "c9"], 4, 8, 1),
    ],
)
def test_count_split(order: list[str], gpus: int, group: int, split: int) -> None:
    block_of = {name: name[0] for name in ("a1", "a2", "b1", "b2", "b3")}
    assert count_split(order, block_of, gpus, group) == split


@given(st.lists(st.sampled_from("abcz"), max_size=8), st.integers(1, 5), st.integers(1, 13))
@settings(deadline=None, max_examples=300)
def test_count_split_is_what_looking_at_every_rank_finds(blocks: list[str], gpus: int, group: int) -> None:
    order = [f"n{place}" for place in range(len(blocks))]
    block_of = {name: block for name, block in zip(order, blocks, strict=True) if block != "z"}
    touched: dict[int, set[str]] = {}
    for rank in range(len(order) * gpus):
        name = order[rank // gpus]
        touched.setdefault(rank // group, set()).add(block_of.get(name, name))
    assert count_split(order, block_of, gpus, group) == sum(len(found) > 1 for found in touched.values())
