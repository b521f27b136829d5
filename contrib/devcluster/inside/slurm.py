"""The compute nodes of the cage's Slurm: which ones are there, and how they come and go.

Instances arrive and leave as on HyperPod: Slurm's configuration is written anew with exactly the nodes that are there,
`scontrol reconfigure` makes it count, and each node's slurmd is started or ended.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from inside import conf
from inside.layout import Layout

CONFIG = Path("/etc/slurm")
LOGS = Path("/var/log/slurm")
SPOOL = Path("/var/spool/slurmd")
_ENDING = 15.0
"""Seconds that Slurm gets to end the jobs of nodes that are taken away: three times its KillWait."""
_POLL = 0.1
_LOCK = Path("/run/slurm/nodes.lock")


class SlurmError(Exception):
    """One of Slurm's programs failed; the message holds what it said."""


class SlurmNodes:
    """The nodes that Slurm knows of now. Methods may be called from several threads or processes: they take turns."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def present(self) -> tuple[str, ...]:
        """Names of the nodes in Slurm's configuration, partition by partition as in the layout."""
        return conf.node_names((CONFIG / "nodes.conf").read_text(encoding="utf-8"))

    def arrive(self, names: Iterable[str]) -> None:
        """Make these nodes known to Slurm and start their slurmds; one that is there already is left alone.

        Returns when the slurmds run, which is up to a few seconds before slurmctld calls the nodes idle.
        Raises ValueError for a name that is not in the layout, and `SlurmError`.
        """
        with _taking_turns():
            before = self.present()
            new = [name for name in dict.fromkeys(names) if name not in before]
            if new:
                try:
                    self.configure([*before, *new])
                    _run("scontrol", "reconfigure")
                    if self._layout.slurmds:
                        start_slurmds(new)
                except SlurmError:
                    # Nobody takes them for present then, and the next attempt finds what this one found.
                    _kill_node_processes(frozenset(new))
                    self.configure(before)
                    raise

    def leave(self, names: Iterable[str]) -> None:
        """Take these nodes away as when their instances are terminated; one that is not there is passed over.

        Jobs on them end as on any node that fails: Slurm requeues them or calls them NODE_FAIL.
        Raises `SlurmError`.
        """
        with _taking_turns():
            before = self.present()
            gone = [name for name in dict.fromkeys(names) if name in before]
            if gone:
                _fail_nodes(",".join(gone))
                _kill_node_processes(frozenset(gone))
                self.configure([name for name in before if name not in gone])
                _run("scontrol", "reconfigure")

    def configure(self, present: Iterable[str]) -> None:
        """Write the files that depend on the present nodes, each replaced in one step. Slurm is not told."""
        names = frozenset(present)
        unknown = sorted(names.difference(self._layout.nodes))
        if unknown:
            raise ValueError(f"not in the layout: {', '.join(unknown)}")
        _replace(CONFIG / "topology.yaml", conf.topology_yaml(self._layout, names))
        _replace(CONFIG / "gres.conf", conf.gres_conf(self._layout, names))
        _replace(CONFIG / "nodes.conf", conf.nodes_conf(self._layout, names))


def start_slurmds(names: Iterable[str]) -> None:
    """Start the slurmd of each node, all at once. Raises `SlurmError` naming those that did not start."""
    starting = {}
    for name in names:
        (SPOOL / name).mkdir(parents=True, exist_ok=True)
        starting[name] = subprocess.Popen(["slurmd", "-N", name], stdin=subprocess.DEVNULL)
    failed = [name for name, process in starting.items() if process.wait() != 0]
    if failed:
        raise SlurmError(f"slurmd did not start on {', '.join(failed)}; see /var/log/slurm/slurmd-{failed[0]}.log")


@contextmanager
def _taking_turns() -> Iterator[None]:
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fail_nodes(nodes: str) -> None:
    """Tell Slurm that they are down, and give it time to end their jobs everywhere, while their slurmds still answer.

    If they did not, slurmctld would try to reach them for ten seconds; and a reconfiguration in the midst of that loses
    the other nodes' word that a job has ended there, so that it stays COMPLETING for minutes.
    """
    jobs = ",".join(_run("squeue", "--noheader", f"--nodelist={nodes}", "--format=%A").split())
    _run("scontrol", "update", f"NodeName={nodes}", "State=DOWN", "Reason=instance terminated")
    deadline = time.monotonic() + _ENDING
    while jobs and time.monotonic() < deadline:
        if not _run("squeue", "--noheader", f"--jobs={jobs}", "--states=RUNNING,COMPLETING", "--format=%A"):
            break
        time.sleep(_POLL)


def _run(*argv: str) -> str:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SlurmError(f"{' '.join(argv[:2])} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.new")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _kill_node_processes(names: frozenset[str]) -> None:
    """End the slurmds of these nodes and all that runs under them, as cutting their power would."""
    logs = {str(LOGS / f"slurmd-{name}.log") for name in names}
    processes = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    # A slurmd and each slurmstepd hold their node's log open and lead a session; tasks stay in their stepd's one.
    sessions = {_session(process) for process in processes if logs & _open_files(process)} - {None}
    for process in processes:
        if _session(process) in sessions:
            with suppress(ProcessLookupError):
                os.kill(int(process.name), signal.SIGKILL)


def _session(process: Path) -> int | None:
    try:
        return os.getsid(int(process.name))
    except ProcessLookupError:
        return None


def _open_files(process: Path) -> set[str]:
    try:
        return {str(descriptor.readlink()) for descriptor in (process / "fd").iterdir()}
    except OSError:  # it ended, or closed a file, while being looked at: slurmd and slurmstepd keep their log
        return set()
