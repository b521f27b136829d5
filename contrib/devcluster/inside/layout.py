"""What the devcluster is made of when every instance is there, as layout.yaml says it.

Slurm's configuration and the emulated HyperPod API are both made from the one `Layout` that `load` returns, so that
they cannot disagree about which node belongs to which block, partition or instance group.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml


class LayoutError(Exception):
    """layout.yaml contradicts itself or cannot be read; the message names the file and the place in it."""


class Kind(StrEnum):
    """How a partition's nodes are connected: the name of Slurm's topology plugin."""

    BLOCK = "block"
    TREE = "tree"
    FLAT = "flat"


@dataclass(frozen=True, slots=True)
class Partition:
    """A Slurm partition fed by instance groups; `gpus` is the number of GPUs of each of its nodes."""

    name: str
    kind: Kind
    gpus: int
    block_sizes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unit:
    """Nodes that share one block (an UltraServer), one leaf switch, or merely a flat partition."""

    name: str
    kind: Kind
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """An instance group. One without a partition (controller, login) has a `count` and no Slurm nodes."""

    name: str
    node_type: str
    instance_type: str
    partition: str | None
    count: int
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Layout:
    """A whole cluster. Mappings keep the order of layout.yaml; node names are unique over all of them."""

    cluster: str
    catch_all: str
    partitions: Mapping[str, Partition]
    units: Mapping[str, Unit]
    spines: Mapping[str, tuple[str, ...]]
    """Switches above the leaves: name -> names of their children, lowest first."""
    groups: Mapping[str, Group]
    slurmds: bool = True
    """Whether a slurmd runs for each node; without, jobs get nodes and begin (CONFIGURING), but never run a step."""

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Every Slurm node, in the order of groups and of the nodes in each."""
        return tuple(name for group in self.groups.values() for name in group.nodes)

    def nodes_of(self, partition: str) -> tuple[str, ...]:
        """The nodes of one partition (not the catch-all), in the order of its groups."""
        return tuple(name for group in self.groups_of(partition) for name in group.nodes)

    def groups_of(self, partition: str) -> tuple[Group, ...]:
        """The instance groups that feed one partition."""
        return tuple(group for group in self.groups.values() if group.partition == partition)

    def group_of(self, node: str) -> Group:
        """The instance group of a node; KeyError for a name that is not in the layout."""
        return self._group_by_node[node]

    def unit_of(self, node: str) -> Unit:
        """The block, leaf switch or loose set of a node; KeyError for a name that is not in the layout."""
        return self._unit_by_node[node]

    @cached_property
    def _group_by_node(self) -> Mapping[str, Group]:
        return {node: group for group in self.groups.values() for node in group.nodes}

    @cached_property
    def _unit_by_node(self) -> Mapping[str, Unit]:
        return {node: unit for unit in self.units.values() for node in unit.nodes}


def load(path: Path) -> Layout:
    """Read and check a layout file. Raises `LayoutError` with the file and the place."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise LayoutError(f"{path}: cannot be read: {error}") from error
    try:
        return _decode(raw)
    except LayoutError as error:
        raise LayoutError(f"{path}: {error}") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise LayoutError(f"{path}: not a layout ({type(error).__name__}: {error})") from error


def _decode(raw: dict[str, Any]) -> Layout:
    partitions = {
        name: Partition(name, Kind(entry["topology"]), int(entry["gpus"]), tuple(entry.get("block_sizes", ())))
        for name, entry in raw["partitions"].items()
    }
    switches = raw.get("switches") or {}
    units = {unit.name: unit for unit in _units(raw, switches)}
    layout = Layout(
        cluster=raw["cluster"],
        catch_all=raw["catch_all"],
        partitions=partitions,
        units=units,
        spines={name: tuple(entry["switches"]) for name, entry in switches.items() if "switches" in entry},
        groups={name: _group(name, entry, partitions, units) for name, entry in raw["groups"].items()},
        slurmds=bool(raw.get("slurmds", True)),
    )
    _check(layout)
    return layout


def _units(raw: dict[str, Any], switches: dict[str, Any]) -> Iterator[Unit]:
    for name, nodes in (raw.get("blocks") or {}).items():
        yield Unit(name, Kind.BLOCK, tuple(nodes))
    for name, entry in switches.items():
        if "nodes" in entry:
            yield Unit(name, Kind.TREE, tuple(entry["nodes"]))
    for name, nodes in (raw.get("loose") or {}).items():
        yield Unit(name, Kind.FLAT, tuple(nodes))


def _group(name: str, entry: dict[str, Any], partitions: Mapping[str, Partition], units: Mapping[str, Unit]) -> Group:
    where = f"groups.{name}"
    partition = entry.get("partition")
    if partition is None:
        return Group(name, entry["node_type"], entry["instance_type"], None, int(entry["count"]), ())
    if partition not in partitions:
        raise LayoutError(f"{where}.partition: there is no partition {partition!r}")
    nodes: list[str] = []
    for unit in entry["units"]:
        if unit not in units:
            raise LayoutError(f"{where}.units: there is no block, leaf switch or loose set {unit!r}")
        if units[unit].kind is not partitions[partition].kind:
            raise LayoutError(f"{where}.units: {unit} is not of partition {partition}'s topology")
        nodes.extend(units[unit].nodes)
    return Group(name, entry["node_type"], entry["instance_type"], partition, len(nodes), tuple(nodes))


def _check(layout: Layout) -> None:
    if layout.catch_all in layout.partitions:
        raise LayoutError(f"catch_all: {layout.catch_all!r} is also in partitions")
    seen: set[str] = set()
    for node in layout.nodes:
        if node in seen:
            raise LayoutError(f"node {node} is there twice")
        seen.add(node)
    for name, children in layout.spines.items():
        for child in children:
            if child not in layout.spines and child not in layout.units:
                raise LayoutError(f"switches.{name}: there is no switch {child!r}")
