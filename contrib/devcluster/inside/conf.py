"""Text of Slurm's configuration files for a layout of which some nodes are present. Pure: no file is touched here.

slurm.conf is written once and includes nodes.conf; what changes when an instance arrives or leaves is only nodes.conf,
gres.conf and topology.yaml. Nodes that are not present are in none of them, as on HyperPod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import yaml

from inside.layout import Kind, Layout, Partition

STEP_LAYOUTS = ("25.11", "26.05")
"""Releases of Slurm whose order of a step's tasks can be asked for."""

LARGEST_GPU_COUNT = 8
"""GPUs that the cage has stand-in devices for; every simulated node shares them."""

GPU_DEVICE = "/dev/nvidia"
FIRST_SLURMD_PORT = 17000
DEFAULT_TOPOLOGY = "default"

# Larger than any simulated job needs: slurmd is told not to compare them with the machine (config_overrides).
_HARDWARE = "CPUs=64 Sockets=2 CoresPerSocket=32 ThreadsPerCore=1 RealMemory=512000"

_SLURM_CONF = """\
ClusterName={cluster}
SlurmctldHost={host}(127.0.0.1)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge

StateSaveLocation=/var/lib/slurm/slurmctld
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmctldDebug=info
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmdPidFile=/run/slurm/slurmd-%n.pid
SlurmdLogFile=/var/log/slurm/slurmd-%n.log
SlurmdDebug=error

# Many slurmds on one machine, none of which owns its hardware.
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
GresTypes=gpu

SelectType=select/cons_tres
SelectTypeParameters={select}
TopologyPlugin=topology/flat
SchedulerType=sched/backfill
# A small cluster for impatient people: look at the queue all the time.
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0,bf_interval=1,bf_min_age_reserve=0
PriorityType=priority/basic

JobCompType=jobcomp/none
MinJobAge=300
ReturnToService=2
KillWait=5
InactiveLimit=0
SlurmdTimeout=300
"""
_INCLUDE = "\ninclude nodes.conf\n"


# Nodes without a slurmd: slurmctld gives them to jobs at once, and waits ten hours for them to power up.
_CLOUD = """\
SuspendProgram=/bin/true
ResumeProgram=/bin/true
SuspendTime=INFINITE
ResumeTimeout=36000
ResumeRate=0
"""


def slurm_conf(layout: Layout, host: str, step_layout: str) -> str:
    """The part that never changes while the cluster runs. `step_layout` is one of `STEP_LAYOUTS`."""
    select = ["CR_Core"]
    if step_layout == "25.11":
        select.append("CR_NO_DIST_TOPO_BLOCK")  # 26.05 orders a step's tasks by block unless told not to
    text = _SLURM_CONF.format(cluster=layout.cluster, host=host, select=",".join(select))
    return text + ("" if layout.slurmds else _CLOUD) + _INCLUDE


def client_conf(text: str) -> str:
    """The same for clients that need no node: they read it in milliseconds however many nodes there are."""
    return text.removesuffix(_INCLUDE)


def cgroup_conf() -> str:
    """The cage has no cgroup of its own, and needs none."""
    return "CgroupPlugin=disabled\n"


def nodes_conf(layout: Layout, present: Collection[str]) -> str:
    """NodeName and PartitionName lines for the present nodes."""
    return "\n".join((*_node_lines(layout, present), *_partition_lines(layout, present))) + "\n"


def node_names(text: str) -> tuple[str, ...]:
    """The nodes that `nodes_conf` wrote, in its order."""
    prefix = "NodeName="
    return tuple(line.split()[0].removeprefix(prefix) for line in text.splitlines() if line.startswith(prefix))


def gres_conf(layout: Layout, present: Collection[str]) -> str:
    """GPUs of each present node: the stand-in devices.

    None without slurmds: slurmctld would read the file once for each cloud node, and nodes.conf has the counts.
    """
    if not layout.slurmds:
        return ""
    lines = []
    for partition, names in _present_by_partition(layout, present):
        if names and partition.gpus:
            files = f"{GPU_DEVICE}[0-{partition.gpus - 1}]"
            lines.append(f"NodeName={','.join(names)} Name=gpu File={files}")
    return "\n".join(lines) + "\n"


def topology_yaml(layout: Layout, present: Collection[str]) -> str:
    """One topology for each block or tree partition that has a node, and the flat one that the catch-all inherits."""
    topologies: list[dict[str, Any]] = []
    for partition, names in _present_by_partition(layout, present):
        if names and partition.kind is Kind.BLOCK:
            topologies.append(_block_topology(layout, partition, names))
        elif names and partition.kind is Kind.TREE:
            topologies.append(_tree_topology(layout, partition, names))
    topologies.append({"topology": DEFAULT_TOPOLOGY, "cluster_default": True, "flat": True})
    return yaml.safe_dump(topologies, sort_keys=False, width=1000)


def _present_by_partition(layout: Layout, present: Collection[str]) -> Iterator[tuple[Partition, tuple[str, ...]]]:
    there = frozenset(present)
    for partition in layout.partitions.values():
        yield partition, tuple(name for name in layout.nodes_of(partition.name) if name in there)


def _node_lines(layout: Layout, present: Collection[str]) -> Iterator[str]:
    ports = {name: FIRST_SLURMD_PORT + index for index, name in enumerate(layout.nodes)}  # whoever else is there
    state = "UNKNOWN" if layout.slurmds else "CLOUD"
    for partition, names in _present_by_partition(layout, present):
        gres = f" Gres=gpu:{partition.gpus}" if partition.gpus else ""
        for name in names:
            yield f"NodeName={name} NodeAddr=127.0.0.1 Port={ports[name]} {_HARDWARE}{gres} State={state}"


def _partition_lines(layout: Layout, present: Collection[str]) -> Iterator[str]:
    yield f"PartitionName={layout.catch_all} Default=YES Nodes={_nodes_field(present)} State=UP"
    for partition, names in _present_by_partition(layout, present):
        topology = f" Topology={partition.name}" if names and partition.kind is not Kind.FLAT else ""
        yield f"PartitionName={partition.name} Nodes={_nodes_field(names)}{topology} State=UP"


def _nodes_field(names: Iterable[str]) -> str:
    return ",".join(names) or '""'


def _block_topology(layout: Layout, partition: Partition, names: Collection[str]) -> dict[str, Any]:
    blocks = [{"block": unit, "nodes": nodes} for unit, nodes in _units(layout, names)]
    return {
        "topology": partition.name,
        "cluster_default": False,
        "block": {"block_sizes": list(partition.block_sizes), "blocks": blocks},
    }


def _tree_topology(layout: Layout, partition: Partition, names: Collection[str]) -> dict[str, Any]:
    leaves = dict(_units(layout, names))
    switches = [{"switch": leaf, "nodes": nodes} for leaf, nodes in leaves.items()]
    known = set(leaves)
    for spine, below in layout.spines.items():
        children = [child for child in below if child in known]
        if children:
            known.add(spine)
            switches.append({"switch": spine, "children": ",".join(children)})
    return {"topology": partition.name, "cluster_default": False, "tree": {"switches": switches}}


def _units(layout: Layout, names: Collection[str]) -> Iterator[tuple[str, str]]:
    """Blocks or leaves that have at least one of `names`, with those nodes as Slurm's list."""
    there = frozenset(names)
    for unit in layout.units.values():
        nodes = [node for node in unit.nodes if node in there]
        if nodes:
            yield unit.name, ",".join(nodes)
