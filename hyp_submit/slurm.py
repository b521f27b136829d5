"""Slurm, to read: two readers of the same cluster. The only module that loads pyslurm.

pyslurm is the quick reader. It has no topologies at the Python level; libslurm, which it has loaded, has
(`slurm_load_topo_config`), and `scontrol show partition` names each partition's one. Where it cannot be used, the same
cluster is read from the text that scontrol and squeue print.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.metadata
import importlib.util
import json
import os
import pickle
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from hyp_submit import decode, scontrol
from hyp_submit.errors import HypSubmitError, Transient, Unreadable, UsageError
from hyp_submit.model import Cluster, Job, Topology

_Name = Literal["pyslurm", "text"]

ELSEWHERE = "use --snapshot FILE or --demo here, or run it on a node of the cluster"
CONFIGURATIONS = (
    "/etc/slurm/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/var/spool/slurmd/conf-cache/slurm.conf",
)
"""Where libslurm, Debian, HyperPod and configless clients keep slurm.conf."""
APART_TIMEOUT = 120.0
"""Seconds that a read in a process of its own may take, all retries of Slurm's included."""
QUERY_TIMEOUT = 30.0
"""Seconds that scontrol and squeue may take."""

PRIVATE = "slurm.conf keeps it from you (PrivateData); its administrator can make you an operator"
UNREACHABLE = ("unable to contact slurm controller", "connection refused", "no route to host")
"""What Slurm's commands say when slurmctld was not there to take their request."""
DOUBTFUL = ("timed out", "zero bytes", "communication", "connection reset", "unexpected message")
"""What they say when it may have taken it."""
_DENIED = "access/permission denied"


@dataclass(frozen=True)
class Choice:
    """Which reader is used, and why."""

    reader: _Name
    why: str


@dataclass(frozen=True)
class Reading:
    """A cluster as read."""

    cluster: Cluster
    choice: Choice
    notes: tuple[str, ...] = ()
    """One line each: what slurmctld may be hiding from this user, what could not be understood and is left out."""


def read(now: Callable[[], datetime]) -> Reading:
    """The cluster as slurmctld has it, by pyslurm where that works, else from the text of Slurm's commands.

    Raises Unreadable where there is no Slurm to ask, Transient where it is away.
    """
    choice = choose()
    if choice.reader == "text":
        return _by_text(now, choice)
    try:
        return _by_pyslurm(now, choice)
    except HypSubmitError:
        raise
    except Exception as error:  # noqa: BLE001  what is compiled against another Slurm can raise anything
        why = f"pyslurm failed: {_in_words(error)}"
    if os.environ.get(FORCED):
        raise Unreadable(f"{why}; {FORCED} allows no other reader")
    reading = _by_text(now, Choice("text", why))
    return replace(reading, notes=(f"{why}; read from scontrol and squeue", *reading.notes))


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
        raise Transient(f"reading Slurm ended with {child.returncode}: {one_line(said)}")
    outcome: Cluster | Exception = pickle.loads(told)  # noqa: S301  from ourselves
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def tell() -> None:
    """The other end of `read_apart`: write the cluster, or why it cannot be read, to stdout."""
    try:
        outcome: Cluster | HypSubmitError = read(lambda: datetime.now(UTC)).cluster
    except HypSubmitError as error:
        outcome = error
    pickle.dump(outcome, sys.stdout.buffer)


# --- the choice of a reader ----------------------------------------------------------------------------------------

FORCED = "HYP_SUBMIT_READER"
"""The environment variable that settles the choice: pyslurm or text."""
PROBE_TIMEOUT = 30.0
"""Seconds after which a pyslurm that is tried hangs: libslurm without its configuration retries for 60 s."""
_AWAY = 3
"""Exit status of a probe that pyslurm itself passed, and that slurmctld did not answer."""
_REMEMBERED = 16
"""Verdicts kept in the file: one for each Python, pyslurm and Slurm that a shared home is used with."""


def choose() -> Choice:
    """The reader to use: pyslurm, or text where pyslurm is missing, built for another Slurm, or of no use here.

    Importing pyslurm where it cannot work does not raise but ends the process, after a minute (libslurm: "Unable to
    process configuration file"). So it is tried in a process of its own first, once for each Python, pyslurm,
    scontrol and slurm.conf; the verdict is kept in a file. Raises Unreadable where there is no Slurm at all.
    """
    configuration = _configuration()
    commands = shutil.which("scontrol")
    if commands is None:
        raise Unreadable("scontrol is not in PATH: load Slurm's module, or add its bin folder")
    match os.environ.get(FORCED, ""):
        case "":
            pass
        case "pyslurm" | "text" as reader:
            return Choice(reader, f"{FORCED}={reader}")
        case other:
            raise UsageError(f"{FORCED}={other}: it can be pyslurm or text")
    package = importlib.util.find_spec("pyslurm")
    if package is None:
        return Choice("text", "pyslurm is not installed")
    parts = (sys.executable, package.origin or "", os.path.realpath(commands), configuration)
    return _judge(tuple(f"{part} {_changed(part)}" for part in parts))


def _configuration() -> str:
    """The configuration that libslurm will find: a file, or the server of a configless client."""
    configured = os.environ.get("SLURM_CONF")
    if configured and not Path(configured).is_file():
        raise Unreadable(f"SLURM_CONF names {configured}, which is no file: {ELSEWHERE}")
    if found := configured or os.environ.get("SLURM_CONF_SERVER"):
        return found
    for path in CONFIGURATIONS:
        if Path(path).is_file():
            return path
    raise Unreadable(f"no Slurm on this host (no SLURM_CONF, no {CONFIGURATIONS[0]}): {ELSEWHERE}")


def _changed(path: str) -> int:
    """When the file was last changed, in nanoseconds; 0 for what is no file."""
    try:
        return Path(path).stat().st_mtime_ns
    except OSError:
        return 0


@cache
def _judge(key: tuple[str, ...]) -> Choice:
    """The verdict on this pyslurm with this Slurm: from this process, from the file, or by trying."""
    name = " | ".join(key)
    verdicts = _verdicts()
    if name in verdicts:
        return verdicts[name]
    choice, lasting = _try_pyslurm()
    if lasting:
        verdicts[name] = choice
        _remember(verdicts)
    return choice


def _try_pyslurm() -> tuple[Choice, bool]:
    """Whether pyslurm can read this Slurm, and whether that will be so as long as neither changes."""
    version = _package_version()
    slurm = query(["scontrol", "--version"]).strip().rpartition(" ")[2]
    if version and _release(version) != _release(slurm):
        return Choice("text", f"pyslurm {version} is built for another Slurm than {slurm}"), True
    argv = [sys.executable, "-P", "-c", "from hyp_submit.slurm import probe; probe()"]
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=null, stdout=null, stderr=subprocess.PIPE, timeout=PROBE_TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        return Choice("text", f"pyslurm {version} gives no answer in {PROBE_TIMEOUT:.0f} s"), False
    if done.returncode in {0, _AWAY}:
        return Choice("pyslurm", f"pyslurm {version}, for Slurm {slurm}"), done.returncode == 0
    last = (done.stderr.strip().splitlines() or [b""])[-1]
    return Choice("text", f"pyslurm {version} ends with {done.returncode}: {one_line(last)}"), True


def _package_version() -> str:
    """The version of the installed pyslurm; "" where it does not say."""
    try:
        return importlib.metadata.version("pyslurm")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _release(version: str) -> tuple[int, ...]:
    """The release of a version, (25, 11) of 25.11.7: pyslurm's must be Slurm's (pyslurm's README)."""
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def probe() -> None:
    """Load everything once by pyslurm, in a process that may die of it; exit status 3 where slurmctld is away."""
    pyslurm = _pyslurm()
    try:
        _load(pyslurm)
    except pyslurm.RPCError:
        sys.exit(_AWAY)


def _verdicts_file() -> Path:
    """Where verdicts are kept (XDG Base Directory: a relative path there counts as none)."""
    cache_home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache_home if cache_home.is_absolute() else Path("~/.cache").expanduser()) / "hyp-submit/readers.json"


def _verdicts() -> dict[str, Choice]:
    """Earlier verdicts, oldest first; none where the file is missing, unreadable or not ours."""
    try:
        kept = json.loads(_verdicts_file().read_bytes())
        return {str(key): Choice(reader, str(why)) for key, (reader, why) in kept.items() if reader in get_args(_Name)}
    except (OSError, RuntimeError, ValueError, TypeError, AttributeError):  # RuntimeError: this user has no home
        return {}


def _remember(verdicts: Mapping[str, Choice]) -> None:
    """Keep the newest verdicts; a home that cannot be written to only means to try again next time."""
    newest = dict(list(verdicts.items())[-_REMEMBERED:])
    text = json.dumps({key: (choice.reader, choice.why) for key, choice in newest.items()}, indent=1)
    try:
        file = _verdicts_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f"{file.name}.{os.getpid()}")
        draft.write_text(f"{text}\n", encoding="utf-8")
        draft.replace(file)
    except (OSError, RuntimeError):
        return


def _in_words(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


# --- by pyslurm ----------------------------------------------------------------------------------------------------


def _pyslurm() -> Any:
    """pyslurm. To be called only where `choose` or the user says so: importing it can end the process."""
    import pyslurm  # noqa: PLC0415  0.1 s, and a shared library

    return pyslurm


def _load(pyslurm: Any) -> tuple[Any, Any, Any, Any]:
    """Configuration, nodes, partitions and jobs, as pyslurm has them. Raises its RPCError."""
    config = pyslurm.slurmctld.Config.load()
    with _whole_task_lists():
        return config, pyslurm.Nodes.load(), pyslurm.Partitions.load(), pyslurm.Jobs.load()


@contextmanager
def _whole_task_lists() -> Iterator[None]:
    """Within it libslurm writes the tasks of an array in full, not their first 64 characters (squeue(1))."""
    before = os.environ.get(_TASK_LISTS)
    os.environ[_TASK_LISTS] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_TASK_LISTS]
        else:
            os.environ[_TASK_LISTS] = before


def _by_pyslurm(now: Callable[[], datetime], choice: Choice) -> Reading:
    pyslurm = _pyslurm()
    with ThreadPoolExecutor(1) as pool:
        named = pool.submit(_ask, "scontrol", "--all", "show", "partition", "--oneliner")
        try:
            config, nodes, partitions, jobs = _load(pyslurm)
        except pyslurm.RPCError as error:
            if _DENIED in str(error).lower():
                raise Unreadable(f"{error}: {PRIVATE}") from error
            raise Transient(f"slurmctld does not answer: {error}") from error
    topologies, default = _topologies(_topology_config())
    cluster = Cluster(
        name=config.cluster_name or "slurm",
        taken_at=now(),
        slurm_version=config.version,
        scheduler_parameters={key: str(value) for key, value in (config.scheduler_parameters or {}).items()},
        nodes=decode.pyslurm_nodes(nodes.values()),
        partitions=decode.pyslurm_partitions(
            partitions.values(), scontrol.partition_topologies(named.result()), list(nodes), default
        ),
        topologies=topologies,
        jobs=decode.pyslurm_jobs(jobs.values()),
    )
    return Reading(cluster, choice, _hidden(config.private_data or ()))


class _TopologyAnswer(ctypes.Structure):
    """topo_config_response_msg_t of slurm.h."""

    _fields_ = (("config", ctypes.c_char_p),)


def _topology_config() -> str | None:
    """topology.yaml as slurmctld has it; None from a Slurm that knows one cluster-wide topology only (24.x)."""
    library = ctypes.CDLL(_loaded_library())
    if not hasattr(library, "slurm_load_topo_config"):
        return None
    answer = ctypes.POINTER(_TopologyAnswer)()
    if library.slurm_load_topo_config(ctypes.byref(answer)) != 0:
        raise Transient("slurmctld does not tell its topology")
    try:
        return (answer.contents.config or b"").decode("utf-8", "replace")
    finally:
        library.slurm_free_topo_config_msg(answer)


def _loaded_library() -> str:
    """The path of the libslurm that pyslurm brought into this process: the same one, so the same configuration."""
    with open("/proc/self/maps", encoding="utf-8") as maps:  # noqa: PTH123
        for line in maps:
            if "libslurm" in (path := line.rstrip().rpartition(" ")[2]):
                return path
    raise FileNotFoundError("no libslurm in this process")


# --- from text -----------------------------------------------------------------------------------------------------

_TASK_LISTS = "SLURM_BITSTR_LEN"
_STEERING = ("SQUEUE_", "SCONTROL_", "SLURM_CLUSTERS", "SLURM_TOPO_LEN", "SLURM_JSON", "SLURM_YAML")
"""Variables by which a user shapes what squeue and scontrol print, or whom they ask."""


def _by_text(now: Callable[[], datetime], choice: Choice) -> Reading:
    """All commands at once: each spends most of its time on reading slurm.conf and on waiting."""
    with ThreadPoolExecutor(5) as pool:
        show = ("scontrol", "--all", "show")
        answers = [pool.submit(_ask, *show, what, "--oneliner") for what in ("nodes", "partition")]
        config, topology, queue = (
            pool.submit(_ask, *show, "config"),
            pool.submit(_topologies_by_text),
            pool.submit(_jobs),
        )
    nodes, node_notes = scontrol.nodes(answers[0].result())
    settings = scontrol.settings(config.result())
    topologies, default = topology.result()
    partitions, partition_notes = scontrol.partitions(answers[1].result(), [node.name for node in nodes], default)
    jobs, job_notes = queue.result()
    cluster = Cluster(
        name=settings.cluster,
        taken_at=now(),
        slurm_version=settings.version,
        scheduler_parameters=settings.scheduler_parameters,
        nodes=nodes,
        partitions=partitions,
        topologies=topologies,
        jobs=jobs,
    )
    return Reading(cluster, choice, (*_hidden(settings.private), *node_notes, *partition_notes, *job_notes))


def _topologies_by_text() -> tuple[tuple[Topology, ...], str | None]:
    return _topologies(_told("scontrol", "show", "topoconf"))


def _topologies(config: str | None) -> tuple[tuple[Topology, ...], str | None]:
    """The topologies of slurmctld's topology.yaml, and which one is the default.

    A cluster that is set up by a topology.conf has one for all partitions, which only `scontrol show topology` tells:
    in the YAML of 26.05 it is an entry of no kind, and older releases have no YAML.
    """
    found, default = decode.topology_file(config or "")
    if any(topology.kind != "flat" for topology in found):
        return found, default
    only = scontrol.cluster_topology(_told("scontrol", "show", "topology") or "")
    return ((only,), only.name) if only else (found, default)


def _jobs() -> tuple[tuple[Job, ...], tuple[str, ...]]:
    """All jobs that slurmctld remembers, and notes."""
    fields = (*scontrol.JOB_FIELDS, scontrol.SEGMENT_FIELD)
    mark = secrets.token_hex(8)
    squeue = ("squeue", "--all", "--states=all", "--noheader", "--Format")
    if (text := _told(*squeue, scontrol.queue_format(fields, mark))) is not None:
        return scontrol.jobs(text, fields, mark)
    jobs, notes = scontrol.jobs(_ask(*squeue, scontrol.queue_format(fields[:-1], mark)), fields[:-1], mark)
    return jobs, (*notes, "this squeue does not tell the segment sizes of jobs")


def _hidden(private: Iterable[str]) -> tuple[str, ...]:
    """What this user may not see; root sees everything."""
    return scontrol.hidden(private) if os.geteuid() else ()


def _ask(*argv: str) -> str:
    """The output of a query of Slurm's own commands, times in seconds since 1970, whatever the user's settings."""
    return _output(argv, _attempt(argv, _plain_environment()))


def _told(*argv: str) -> str | None:
    """The same, or None where the command refuses: this release of it does not know the question."""
    done = _attempt(argv, _plain_environment())
    if done.returncode != 0 and not _away(done):
        return None
    return _output(argv, done)


def _plain_environment() -> Mapping[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_STEERING)}
    return {**kept, "SLURM_TIME_FORMAT": "%s", "TZ": "UTC0", _TASK_LISTS: "0"}


def query(argv: Sequence[str]) -> str:
    """The output of a query of Slurm's own commands, in the user's own environment."""
    return _output(argv, _attempt(argv, None))


def _attempt(argv: Sequence[str], environment: Mapping[str, str] | None) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(
            argv, capture_output=True, timeout=QUERY_TIMEOUT, check=False, stdin=subprocess.DEVNULL, env=environment
        )
    except FileNotFoundError as error:
        raise Unreadable(f"{argv[0]} is not in PATH: load Slurm's module, or add its bin folder") from error
    except OSError as error:
        raise Unreadable(f"{argv[0]} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise Transient(f"{argv[0]} gave no answer in {QUERY_TIMEOUT:.0f} s") from error


def _output(argv: Sequence[str], done: subprocess.CompletedProcess[bytes]) -> str:
    if done.returncode == 0:
        return done.stdout.decode("utf-8", "replace")
    said = one_line(done.stderr)
    if _away(done):
        raise Transient(f"slurmctld does not answer: {said}")
    if _DENIED in said.lower():
        raise Unreadable(f"{said}: {PRIVATE}")
    raise Transient(f"{argv[0]} failed: {said}")


def _away(done: subprocess.CompletedProcess[bytes]) -> bool:
    said = done.stderr.decode("utf-8", "replace").lower()
    return any(sign in said for sign in (*UNREACHABLE, *DOUBTFUL))


def one_line(text: bytes) -> str:
    return " ".join(text.decode("utf-8", "replace").split()) or "no message"


def configuration() -> Mapping[str, str]:
    """Slurm's configuration, as `scontrol show config` tells it. Raises as `read` does."""
    return scontrol.values(query(["scontrol", "show", "config"]))
