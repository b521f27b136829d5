"""Small clusters, drawn: a row is a block, a leaf switch or a flat partition, a character is a node.

    .   idle                           x   drained
    #   busy, no known end             !   down
    1-9 busy for that many tens of     ~   idle and powered down (Slurm gives it jobs)
        minutes from NOW

So `block_cluster("..1#", "x...")` is two blocks of four nodes:

    b1  n1 idle  n2 idle  n3 busy for 10 min  n4 busy
    b2  n5 drained  n6 idle  n7 idle  n8 idle
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from math import prod

from hyp_submit.model import (
    Block,
    Cluster,
    Framework,
    InstanceGroup,
    Job,
    Node,
    Partition,
    Switch,
    Topology,
    Workload,
)

NOW = datetime(2026, 11, 30, 14, 0, tzinfo=UTC)

MEGATRON = Framework(
    name="megatron",
    title="Megatron-LM",
    groups=(("tp", "cp"), ("ep", "etp")),
    expert=("ep", "etp"),
    defaults={"etp": "tp"},
    flags={
        "tp": ("--tensor-model-parallel-size",),
        "pp": ("--pipeline-model-parallel-size",),
        "cp": ("--context-parallel-size",),
        "ep": ("--expert-model-parallel-size",),
        "etp": ("--expert-tensor-parallel-size",),
    },
    pp_inside_flags=("--use-tp-pp-dp-mapping",),
    detect=("pretrain_gpt.py",),
)
FSDP = Framework(
    name="fsdp",
    title="PyTorch FSDP",
    groups=(("shard",),),
    flags={"shard": ("--shard-degree", "--shard_degree")},
    detect=("--sharding_strategy",),
)


def minutes(count: float) -> datetime:
    """The moment so many minutes after NOW."""
    return NOW + timedelta(minutes=count)


def node(name: str, drawn: str, gpus: int = 4) -> Node:
    """The node that a character stands for."""
    base, flags = {
        ".": ("IDLE", frozenset[str]()),
        "~": ("IDLE", frozenset({"CLOUD", "POWERED_DOWN"})),
        "x": ("IDLE", frozenset({"DRAIN"})),
        "!": ("DOWN", frozenset[str]()),
    }.get(drawn, ("ALLOCATED", frozenset[str]()))
    return Node(name, base, flags, gpus=gpus, gpus_allocated=gpus if base == "ALLOCATED" else 0)


def named_rows(rows: Sequence[str], *, scattered: bool = False) -> list[list[str]]:
    """Names for the nodes of each row: row after row, or dealt out over the rows as HyperPod's addresses are."""
    places = [(row, column) for row, drawn in enumerate(rows) for column in range(len(drawn))]
    dealt = sorted(places, key=lambda place: (place[1], place[0])) if scattered else places
    name_at = {place: f"n{number}" for number, place in enumerate(dealt, start=1)}
    return [[name_at[row, column] for column in range(len(drawn))] for row, drawn in enumerate(rows)]


def _cluster(
    rows: Sequence[str],
    names: Sequence[Sequence[str]],
    topology: Topology,
    *,
    gpus: int,
    groups: Iterable[InstanceGroup],
    state: str,
    scheduler_parameters: Mapping[str, str] | None = None,
) -> Cluster:
    drawn = {
        name: mark for row, names_ in zip(rows, names, strict=True) for name, mark in zip(names_, row, strict=True)
    }
    table = sorted(drawn, key=lambda name: int(name[1:]))
    jobs = [
        Job(
            id=number,
            user="user",
            name="job",
            partition="part",
            state="RUNNING",
            nodes=(name,),
            node_count=1,
            end_time=minutes(10 * int(drawn[name])) if drawn[name].isdigit() else None,
        )
        for number, name in enumerate(table, start=1)
        if drawn[name] == "#" or drawn[name].isdigit()
    ]
    return Cluster(
        name="drawn",
        taken_at=NOW,
        nodes=tuple(node(name, drawn[name], gpus) for name in table),
        partitions=(Partition("part", state, topology.name, tuple(table), default=True),),
        topologies=(topology,),
        jobs=tuple(jobs),
        instance_groups=tuple(groups),
        scheduler_parameters=scheduler_parameters or {},
    )


def block_cluster(
    *rows: str,
    sizes: Sequence[int] | None = None,
    scattered: bool = False,
    gpus: int = 4,
    groups: Iterable[InstanceGroup] = (),
    state: str = "UP",
) -> Cluster:
    """A partition `part` with a block a row, `b1`, `b2`, ...; `sizes` the block sizes (the longest row)."""
    names = named_rows(rows, scattered=scattered)
    topology = Topology(
        "topo",
        "block",
        tuple(sizes) if sizes is not None else (max(map(len, rows)),),
        tuple(Block(f"b{number}", tuple(members)) for number, members in enumerate(names, start=1)),
    )
    return _cluster(rows, names, topology, gpus=gpus, groups=groups, state=state)


def tree_cluster(
    *spines: Sequence[str],
    gpus: int = 8,
    groups: Iterable[InstanceGroup] = (),
    scheduler_parameters: Mapping[str, str] | None = None,
) -> Cluster:
    """A partition `part` under a root over spines `s1`, `s2`, ...; each spine a list of leaves `l1`, `l2`, ..."""
    rows = [leaf for spine in spines for leaf in spine]
    names = named_rows(rows)
    leaves = [Switch(f"l{number}", nodes=tuple(members)) for number, members in enumerate(names, start=1)]
    above, first = [], 0
    for number, spine in enumerate(spines, start=1):
        children = tuple(leaf.name for leaf in leaves[first : first + len(spine)])
        above.append(Switch(f"s{number}", children=children))
        first += len(spine)
    root = Switch("root", children=tuple(spine.name for spine in above))
    topology = Topology("topo", "tree", switches=(*leaves, *above, root))
    return _cluster(
        rows, names, topology, gpus=gpus, groups=groups, state="UP", scheduler_parameters=scheduler_parameters
    )


def flat_cluster(row: str, *, gpus: int = 0, groups: Iterable[InstanceGroup] = ()) -> Cluster:
    """A partition `part` without a topology."""
    return _cluster([row], named_rows([row]), Topology("topo", "flat"), gpus=gpus, groups=groups, state="UP")


def group(
    status: str = "InService", current: int = 8, target: int = 8, min_: int = 0, *, name: str = "w1"
) -> InstanceGroup:
    """An instance group that feeds the partition `part`."""
    return InstanceGroup(name, status, current, target, min_, partitions=("part",))


def rank_groups(axes: Sequence[tuple[str, int]], inner: Sequence[str]) -> list[list[int]]:
    """The ranks of each group that spans the axes `inner`, in a grid whose first axis varies fastest."""
    strides = {name: prod(size for _, size in axes[:place]) for place, (name, _) in enumerate(axes)}
    found: dict[tuple[int, ...], list[int]] = {}
    for at in product(*(range(size) for _, size in axes)):
        where = dict(zip((name for name, _ in axes), at, strict=True))
        key = tuple(place for name, place in where.items() if name not in inner)
        found.setdefault(key, []).append(sum(strides[name] * place for name, place in where.items()))
    return [sorted(ranks) for ranks in found.values()]


def megatron_groups(sizes: Workload, world: int) -> list[list[int]]:
    """The TP x CP and the EP x ETP groups of Megatron's two grids over the same ranks."""
    tp, cp, pp = sizes.tp or 1, sizes.cp or 1, sizes.pp or 1
    ep, etp = sizes.ep or 1, sizes.etp or sizes.tp or 1
    dense, expert = [("tp", tp), ("cp", cp)], [("etp", etp), ("ep", ep)]
    dp, edp = ("dp", world // (tp * cp * pp)), ("dp", world // (ep * etp * pp))
    if sizes.pp_inside:
        dense, expert = [*dense, ("pp", pp), dp], [*expert, ("pp", pp), edp]
        return rank_groups(dense, ["tp", "cp", "pp"]) + rank_groups(expert, ["etp", "ep"])
    return rank_groups([*dense, dp, ("pp", pp)], ["tp", "cp"]) + rank_groups([*expert, edp, ("pp", pp)], ["etp", "ep"])
