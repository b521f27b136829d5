"""Parallel sizes -> the groups of ranks that must stay in one NVLink domain, and the unit of a segment.

A world of `nodes x GPUs per node` ranks is cut into consecutive runs: TP x CP ranks talk at every layer, EP x ETP ranks
exchange tokens at every MoE layer. Slurm gives each segment its own block, so a segment of S nodes keeps every run
whole exactly when S x GPUs per node is a multiple of each run's length; S must then be a multiple of the *unit*

    u = lcm(run lengths, GPUs per node) / GPUs per node

Worked: TP 4, EP 18, ETP 1 on nodes of 4 GPUs has runs of 4 and of 18 GPUs; lcm(4, 18, 4) = 36 GPUs, so u = 9 nodes
(not 5: a segment of 5 nodes, 20 GPUs, would cut the second run of 18).
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm, prod
from typing import Any

from hyp_submit.model import Framework, Group, Note, Workload

SIZES = ("tp", "pp", "cp", "ep", "etp", "dp", "shard")
"""The sizes of a workload, in the order in which they are shown."""


def complete(workload: Workload, framework: Framework | None) -> Workload:
    """Fill in the sizes that follow from others: the framework's defaults, and DP from the world.

    What cannot be worked out stays None. Sources say how a value came about.
    """
    if framework is None:
        return workload
    for size, same_as in framework.defaults.items():
        if (value := getattr(workload, same_as)) is not None and getattr(workload, size) is None:
            workload = with_size(workload, size, value, f"default (= {same_as.upper()})")
    world = world_size(workload)
    model = prod(getattr(workload, size) or 1 for size in ("tp", "cp", "pp"))
    if workload.dp is None and world and has_sizes(workload) and world % model == 0:
        return with_size(workload, "dp", world // model, "world / (TP x CP x PP)")
    return workload


def with_size(workload: Workload, size: str, value: int, source: str) -> Workload:
    """The workload with one more size, and where it came from."""
    changes: dict[str, Any] = {size: value, "sources": {**workload.sources, size: source}}
    return replace(workload, **changes)


def has_sizes(workload: Workload) -> bool:
    """Whether any parallel size is known."""
    return any(getattr(workload, size) is not None for size in SIZES)


def world_size(workload: Workload) -> int | None:
    """Ranks of the whole job, or None where nodes or GPUs per node are not known."""
    if not workload.nodes or not workload.gpus_per_node:
        return None
    return workload.nodes * workload.gpus_per_node


def groups(workload: Workload, framework: Framework | None) -> tuple[Group, ...]:
    """The runs of ranks that belong together, in the profile's order; () where nothing has to be kept whole.

    A run whose sizes are all unknown is left out, an unknown factor counts as 1.
    """
    if framework is None:
        return ()
    found = []
    for factors in framework.groups:
        if workload.pp_inside and "tp" in factors:
            factors = (*factors, "pp")  # noqa: PLW2901
        if any(getattr(workload, size) is not None for size in factors):
            length = prod(getattr(workload, size) or 1 for size in factors)
            found.append(Group(" x ".join(size.upper() for size in factors), length))
    return tuple(found)


def expert_groups(framework: Framework | None, found: tuple[Group, ...]) -> tuple[Group, ...]:
    """Those of the groups that are kept whole when not all can be."""
    name = " x ".join(size.upper() for size in framework.expert) if framework else ""
    return tuple(group for group in found if group.name == name)


def unit(found: tuple[Group, ...], gpus_per_node: int) -> int:
    """Nodes that a segment must be a multiple of; 1 where there are no groups or no GPUs."""
    if not gpus_per_node:
        return 1
    return lcm(gpus_per_node, *(group.gpus for group in found)) // gpus_per_node


def check(workload: Workload, framework: Framework | None) -> tuple[Note, ...]:
    """What is wrong with the sizes themselves: factors that do not divide the world. Empty when all is well."""
    world = world_size(workload)
    if world is None or framework is None:
        return ()
    problems = []
    for factors in framework.groups:
        with_pp = tuple(dict.fromkeys((*factors, "pp")))
        known = [size for size in with_pp if getattr(workload, size) not in {None, 1}]
        length = prod(getattr(workload, size) or 1 for size in with_pp)
        if length and world % length:
            product = " x ".join(f"{size.upper()} {getattr(workload, size)}" for size in known)
            problems.append(
                Note(
                    "sizes-do-not-divide",
                    f"{product} = {length} GPUs does not divide the {world} GPUs of {workload.nodes} nodes x "
                    f"{workload.gpus_per_node}: change the sizes or the node count",
                )
            )
    return tuple(problems)
