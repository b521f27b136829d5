"""What a cluster is made of at this moment, as seen from outside."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from outside.records import Record

_SCRIPT = Path(__file__).resolve().parent.parent / "devcluster"
_DAEMONS = ("munged", "slurmctld", "slurmd")
_PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Status:
    """`state` is `running`, `booting` or `dead`; `pids` are outer ones by program, `nodes` counts by Slurm's state."""

    name: str
    state: str
    scenario: str
    cluster: str
    root: str
    pids: dict[str, list[int]]
    nodes: dict[str, int]


def of(record: Record) -> Status:
    """Look at a cluster. Nodes are empty where slurmctld does not answer."""
    alive = record.alive()
    state = ("running" if record.ready else "booting") if alive else "dead"
    return Status(
        name=record.name,
        state=state,
        scenario=record.settings.scenario,
        cluster=record.cluster,
        root=record.root,
        pids=_pids(record) if alive else {},
        nodes=_nodes(record) if state == "running" else {},
    )


def text(status: Status) -> str:
    """For people: three lines."""
    pids = ", ".join(
        f"{program} {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} x {program}"
        for program, numbers in status.pids.items()
    )
    nodes = ", ".join(f"{count} {state}" for state, count in status.nodes.items()) or "unknown"
    return f"{status.name}: {status.state}, scenario {status.scenario}\n  processes: {pids or 'none'}\n  nodes: {nodes}"


def _pids(record: Record) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {"init": [record.init.pid]}
    for pid in _members(record.init.pid):
        program = _program(pid)
        if program:
            found.setdefault(program, []).append(pid)
    return found


def _members(init: int) -> Iterator[int]:
    """Every other process of that one's PID namespace."""
    namespace = _namespace(init)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != init and _namespace(int(entry.name)) == namespace:
            yield int(entry.name)


def _namespace(pid: int) -> str | None:
    try:
        return str(Path(f"/proc/{pid}/ns/pid").readlink())
    except OSError:  # it has ended
        return None


def _program(pid: int) -> str | None:
    try:
        argv = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # it has ended
        return None
    if argv[1:3] == ["-m", "emulator"]:
        return "emulator"
    name = Path(argv[0]).name
    return name if name in _DAEMONS else None


def _nodes(record: Record) -> dict[str, int]:
    sinfo = ("sinfo", "--noheader", "--Node", "--format=%N %T")
    argv = (sys.executable, str(_SCRIPT), "exec", "--name", record.name, "--", *sinfo)
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except subprocess.TimeoutExpired:
        return {}
    if done.returncode != 0:
        return {}
    states = dict(line.split() for line in done.stdout.splitlines())  # sinfo names a node once for each partition
    return dict(Counter(states.values()))
