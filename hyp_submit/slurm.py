"""Slurm itself: pyslurm and libslurm to read, sbatch to submit. The only module that loads pyslurm.

pyslurm has no topologies at the Python level; libslurm, which it has loaded, has (`slurm_load_topo_config`), and
`scontrol show partition` names each partition's one.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hyp_submit import decode
from hyp_submit.errors import HypSubmitError, OutcomeUnknown, Refused, Transient, Unreadable
from hyp_submit.model import Cluster, Topology

ELSEWHERE = "use --snapshot FILE or --demo here, or run it on a node of the cluster"
CONFIGURATIONS = (
    "/etc/slurm/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
"""Where libslurm, Debian, HyperPod and configless clients keep slurm.conf."""
SBATCH_TIMEOUT = 120.0
"""Seconds. Longer than the retries of Slurm's own clients (MessageTimeout, 10 s by default, a few times over)."""
APART_TIMEOUT = 120.0
"""Seconds that a read in a process of its own may take, all retries of Slurm's included."""
QUERY_TIMEOUT = 30.0
"""Seconds that scontrol and squeue may take."""

_UNREACHABLE = ("unable to contact slurm controller", "connection refused", "no route to host")
_DOUBTFUL = ("timed out", "zero bytes", "communication", "connection reset", "unexpected message")


def read(now: Callable[[], datetime]) -> Cluster:
    """The cluster as slurmctld has it. Raises Unreadable where there is no Slurm to ask, Transient where it is away."""
    pyslurm = _pyslurm()
    try:
        config = pyslurm.slurmctld.Config.load()
        nodes = pyslurm.Nodes.load()
        partitions = pyslurm.Partitions.load()
        jobs = pyslurm.Jobs.load()
    except pyslurm.RPCError as error:
        raise Transient(f"slurmctld does not answer: {error}") from error
    return Cluster(
        name=config.cluster_name or "slurm",
        taken_at=now(),
        slurm_version=config.version,
        scheduler_parameters={key: str(value) for key, value in (config.scheduler_parameters or {}).items()},
        nodes=decode.pyslurm_nodes(nodes.values()),
        partitions=decode.pyslurm_partitions(partitions.values(), _partition_topologies(), list(nodes)),
        topologies=_topologies(),
        jobs=decode.pyslurm_jobs(jobs.values()),
    )


def read_apart() -> Cluster:
    """The live cluster, read by a process of its own, so that a screen can go on meanwhile. Raises as `read` does.

    pyslurm holds Python's lock until slurmctld has answered: no thread paints or takes a key then. And libslurm writes
    its complaints to stderr, over whatever is on the screen.
    """
    argv = [sys.executable, "-P", "-c", "from hyp_submit.slurm import tell; tell()"]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=null, stdout=pipe, stderr=pipe, start_new_session=True) as child:
        atexit.register(child.kill)
        try:
            told, said = child.communicate(timeout=APART_TIMEOUT)
        except subprocess.TimeoutExpired as error:
            child.kill()
            raise Transient(f"Slurm gave no answer in {APART_TIMEOUT:.0f} s") from error
        finally:
            atexit.unregister(child.kill)
    if child.returncode != 0:
        raise Transient(f"reading Slurm ended with {child.returncode}: {_one_line(said)}")
    outcome: Cluster | Exception = pickle.loads(told)  # noqa: S301  from ourselves
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def tell() -> None:
    """The other end of `read_apart`: write the cluster, or why it cannot be read, to stdout."""
    try:
        outcome: Cluster | HypSubmitError = read(lambda: datetime.now(UTC))
    except HypSubmitError as error:
        outcome = error
    pickle.dump(outcome, sys.stdout.buffer)


def _pyslurm() -> Any:
    """pyslurm, once it is sure that importing it can succeed: without a configuration libslurm ends the process."""
    configured = os.environ.get("SLURM_CONF")
    if configured and not Path(configured).is_file():
        raise Unreadable(f"SLURM_CONF names {configured}, which is no file: {ELSEWHERE}")
    if not configured and not any(Path(path).is_file() for path in CONFIGURATIONS):
        raise Unreadable(f"no Slurm on this host (no SLURM_CONF, no {CONFIGURATIONS[0]}): {ELSEWHERE}")
    try:
        import pyslurm  # noqa: PLC0415  0.1 s, and a shared library
    except ImportError as error:
        raise Unreadable(
            f"pyslurm is missing or built for another Slurm ({error}): pip install 'hyp-submit[slurm]' where Slurm is"
        ) from error
    return pyslurm


class _TopologyAnswer(ctypes.Structure):
    """topo_config_response_msg_t of slurm.h."""

    _fields_ = (("config", ctypes.c_char_p),)


def _topologies() -> tuple[Topology, ...]:
    library = ctypes.CDLL(_loaded_library())
    answer = ctypes.POINTER(_TopologyAnswer)()
    if library.slurm_load_topo_config(ctypes.byref(answer)) != 0:
        raise Transient("slurmctld does not tell its topology")
    try:
        text = (answer.contents.config or b"").decode("utf-8", "replace")
    finally:
        library.slurm_free_topo_config_msg(answer)
    return decode.topologies(text)


def _loaded_library() -> str:
    """The path of the libslurm that pyslurm brought into this process: the same one, so the same configuration."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps:
            if "libslurm" in (path := line.rstrip().rpartition(" ")[2]):
                return path
    raise Unreadable("pyslurm is loaded, but no libslurm with it")


def _partition_topologies() -> Mapping[str, str]:
    """The topology that each partition names; one that names none is left out."""
    text = _run(["scontrol", "show", "partition", "--oneliner"])
    return {
        record["PartitionName"]: record["Topology"]
        for record in decode.oneline_records(text)
        if record.get("PartitionName") and record.get("Topology")
    }


def _run(argv: Sequence[str]) -> str:
    """The output of a query of Slurm's own commands."""
    try:
        done = subprocess.run(argv, capture_output=True, timeout=QUERY_TIMEOUT, check=False, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise Unreadable(f"{argv[0]} is not in PATH: load Slurm's module, or add its bin folder") from error
    except subprocess.TimeoutExpired as error:
        raise Transient(f"{argv[0]} gave no answer in {QUERY_TIMEOUT:.0f} s") from error
    if done.returncode != 0:
        raise Transient(f"{argv[0]} failed: {_one_line(done.stderr)}")
    return done.stdout.decode("utf-8", "replace")


def _one_line(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split()) or "no message"


# --- submission ----------------------------------------------------------------------------------------------------


def sbatch(argv: Sequence[str], environment: Mapping[str, str], token: str, waits: bool) -> str:
    """Run sbatch; the job's id. `waits`: it answers only when the job has ended (`--wait`), whenever that is.

    Ctrl-C does not reach it: what is submitted is submitted, and its id is told. After an answer that leaves the
    outcome open, the queue is asked for the token. Raises Refused with Slurm's words, Transient if the job certainly
    did not get there, OutcomeUnknown if nobody knows.
    """
    try:
        process = subprocess.Popen(
            argv, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )
    except FileNotFoundError as error:
        raise Unreadable("sbatch is not in PATH: load Slurm's module, or add its bin folder") from error
    except OSError as error:
        raise Refused(f"sbatch cannot be run: {error.strerror}") from error
    try:
        output, errors = process.communicate(timeout=None if waits else SBATCH_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return _find(token, f"sbatch gave no answer in {SBATCH_TIMEOUT:.0f} s")
    said = _one_line(errors)
    job = output.decode("ascii", "replace").strip().partition(";")[0]
    if job.isdecimal():
        return job
    if any(sign in said.lower() for sign in _UNREACHABLE):
        raise Transient(f"not submitted, slurmctld is away: {said}")
    if process.returncode <= 0 or any(sign in said.lower() for sign in _DOUBTFUL):
        return _find(token, f"sbatch ended with {process.returncode}: {said}")
    raise Refused(said.removeprefix("sbatch: ").removeprefix("error: "))


def _find(token: str, doubt: str) -> str:
    """The id of the job with the token in its comment. Raises OutcomeUnknown where the queue does not show it."""
    try:
        queue = _run(["squeue", "--me", "--noheader", "--states=all", "--format=%A %k"])
    except Unreadable as error:
        raise OutcomeUnknown(f"{doubt}; {error}; look for it: squeue --me --format='%A %k' | grep {token}") from error
    found = sorted(
        int(job) for job, _, comment in (line.partition(" ") for line in queue.splitlines()) if token in comment
    )
    if not found:
        raise OutcomeUnknown(
            f"{doubt}; no job of yours with {token} in its comment now: look once more with "
            f"squeue --me --format='%A %k', before you submit again"
        )
    return str(found[0])


@contextmanager
def interrupts_deferred() -> Iterator[list[int]]:
    """Within it Ctrl-C is only noted, in the list yielded: for a step that must not stop half way."""
    noted: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: noted.append(number))
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)
