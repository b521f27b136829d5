"""Hypothesis strategies: node names, drawn clusters (see factories), placement requests, parallel sizes."""

from dataclasses import dataclass

from hypothesis import strategies as st

from hyp_submit.model import Workload

hyperpod_names = st.builds("ip-10-{}-{}-{}".format, st.integers(0, 3), st.integers(0, 30), st.integers(0, 255))
"""Names as HyperPod gives them."""

site_names = st.from_regex(r"[a-z]{1,2}-?[0-9]{1,3}(-?[0-9]{1,3}|[a-z]){0,2}", fullmatch=True)
"""Names of other sites: padded numbers, numbers in the middle."""

rows = st.lists(st.text(".~x!#1259", min_size=1, max_size=6), min_size=1, max_size=5)
"""Rows of a drawn cluster."""


@dataclass(frozen=True)
class Placement:
    """One question to `place_blocks`."""

    free: list[int]
    pieces: list[int]
    base: int
    spread: bool


@st.composite
def placements(draw: st.DrawFn) -> Placement:
    """Free nodes of blocks no larger than the base size, and equal pieces of at most two blocks."""
    base = draw(st.integers(1, 6))
    free = draw(st.lists(st.integers(0, base), min_size=1, max_size=6))
    piece = draw(st.integers(1, 2 * base))
    count = draw(st.integers(1, 4))
    return Placement(free, [piece] * count, base, draw(st.booleans()))


_sizes = st.sampled_from([1, 1, 2, 3, 4, 6, 8, 12])


@st.composite
def megatron_workloads(draw: st.DrawFn) -> Workload:
    """Sizes of which some divide the world and some do not."""
    return Workload(
        framework="megatron",
        tp=draw(_sizes),
        cp=draw(_sizes),
        pp=draw(st.sampled_from([1, 1, 2, 4])),
        ep=draw(st.sampled_from([1, 2, 4, 8, 9, 18])),
        etp=draw(st.sampled_from([1, 1, 2, 4])),
        pp_inside=draw(st.booleans()),
    )
