"""The cage's PID 1: brings Slurm and the emulated HyperPod API up, tells the outside, then only reaps orphans.

It talks to whoever started the cage in lines on stdout: `step TEXT` as each step begins, then `ready`, `failed` or
`refused` (the input is wrong) with JSON. When nobody listens any more it ends, and the cage with it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from inside import conf, jobs, layout, scale, slurm

API_PORT = 8000
API_LOG = Path("/var/log/hyperpod-api.log")
DEADLINE = 60.0
"""Seconds that Slurm, and then the API, may take to answer."""

_POLL = 0.05
_LOG_LINES = 15
_LOG_WIDTH = 500
# Slurm wants an address that is not a loopback one before its daemons bind.
_ADDRESS = "10.1.255.1"


class InputError(Exception):
    """The scenario cannot be used; the message says why."""


class BootError(Exception):
    """The cage cannot serve; the message says what did not come up, and ends with what the log says."""


def main() -> None:
    """Boot, report, and reap for ever."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--layout", type=Path, required=True)
    parser.add_argument("--scenario", required=True, help="name, or path inside the cage")
    parser.add_argument("--speed", help="the scenario's own if not given")
    parser.add_argument("--scale", type=int, metavar="JOBS", help="make layout and scenario; begin with JOBS jobs")
    parser.add_argument("--step-layout", choices=conf.STEP_LAYOUTS, required=True)
    args = parser.parse_args()
    try:
        if args.scale is not None:
            _write_scale(args.layout)
        ready = _boot(args.layout, args.scenario, args.step_layout, args.speed, args.scale or 0)
    except (InputError, layout.LayoutError) as error:
        _tell("refused", json.dumps(str(error)))
        sys.exit(1)
    except (BootError, slurm.SlurmError) as error:
        _tell("failed", json.dumps(str(error)))
        sys.exit(1)
    _tell("ready", json.dumps(ready))
    _let_go_of_output()
    _reap()


def _write_scale(layout_file: Path) -> None:
    """Put the large cluster where a layout is given otherwise, and its scenario beside it. JSON is YAML."""
    layout_file.write_text(json.dumps(scale.layout()), encoding="utf-8")
    layout_file.with_name("scale.yaml").write_text(json.dumps(scale.scenario()), encoding="utf-8")


def _boot(layout_file: Path, scenario: str, step_layout: str, speed: str | None, job_count: int) -> dict[str, object]:
    plan = layout.load(layout_file)
    emulator = [sys.executable, "-m", "emulator", "--layout", str(layout_file), "--scenario", scenario]
    _tell("step", "machine")
    _prepare_machine(plan)
    nodes = _initial_nodes(emulator)
    _tell("step", f"slurmctld and {len(nodes)} {'slurmds' if plan.slurmds else 'nodes without slurmds'}")
    _start_slurm(plan, nodes, step_layout)
    _wait_for_idle(plan, nodes)
    if job_count:
        _tell("step", f"{job_count} jobs submitted")
        jobs.submit(scale.batches(job_count))
        _tell("step", "nodes for every job")
        jobs.wait_for_nodes(job_count)
    _tell("step", f"HyperPod API, scenario {Path(scenario).stem}")
    clock = ["--speed", speed] if speed else []
    _start_api([*emulator, *clock, "--port", str(API_PORT), "--slurm"])
    return {"cluster": plan.cluster, "nodes": len(nodes), "jobs": job_count, "api_port": API_PORT}


def _tell(kind: str, text: str) -> None:
    print(kind, text, flush=True)


def _prepare_machine(plan: layout.Layout) -> None:
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo")
    names = "\n".join(f"127.0.0.1 {name}" for name in plan.nodes)
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost\n{_ADDRESS} {socket.gethostname()}\n{names}\n")
    for folder, owner in (
        ("/run/munge", "munge"),
        ("/run/slurm", "slurm"),
        (str(slurm.LOGS), "slurm"),
        ("/var/lib/slurm/slurmctld", "slurm"),
    ):
        Path(folder).mkdir(parents=True, exist_ok=True)
        shutil.chown(folder, owner, owner)
    null = Path(os.devnull).stat().st_rdev
    for index in range(conf.LARGEST_GPU_COUNT):
        # Slurm sets CUDA_VISIBLE_DEVICES only for a real device; the null one does, and is nobody's GPU.
        os.mknod(f"{conf.GPU_DEVICE}{index}", 0o666 | stat.S_IFCHR, null)


def _initial_nodes(emulator: Sequence[str]) -> tuple[str, ...]:
    """The nodes that are there when the scenario begins."""
    done = subprocess.run([*emulator, "--initial-nodes"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InputError(_last_lines(done.stderr))
    return tuple(done.stdout.split())


def _start_slurm(plan: layout.Layout, nodes: Sequence[str], step_layout: str) -> None:
    (slurm.CONFIG / "slurm.conf").write_text(conf.slurm_conf(plan, socket.gethostname(), step_layout))
    (slurm.CONFIG / "cgroup.conf").write_text(conf.cgroup_conf())
    slurm.SlurmNodes(plan).configure(nodes)
    _run("setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", "munged")
    _run("slurmctld")
    if plan.slurmds:
        slurm.start_slurmds(nodes)


def _wait_for_idle(plan: layout.Layout, nodes: Sequence[str]) -> None:
    idle = "idle" if plan.slurmds else "idle~"  # powered down, to be powered up for a job
    deadline = time.monotonic() + DEADLINE
    while (states := _states()) is None or any(states.get(name) != idle for name in nodes):
        if time.monotonic() > deadline:
            raise BootError(_why_not_idle(plan, states, [name for name in nodes if (states or {}).get(name) != idle]))
        time.sleep(_POLL)


def _why_not_idle(plan: layout.Layout, states: Mapping[str, str] | None, late: Sequence[str]) -> str:
    if states is None:
        return f"slurmctld does not answer; its log ends:\n{_tail(slurm.LOGS / 'slurmctld.log')}"
    listing = ", ".join(f"{name} ({states.get(name, 'unknown to Slurm')})" for name in late[:_LOG_LINES])
    daemon = f"slurmd-{late[0]}" if plan.slurmds else "slurmctld"
    return (
        f"{len(late)} nodes did not become idle: {listing}\n{daemon}.log ends:\n{_tail(slurm.LOGS / f'{daemon}.log')}"
    )


def _states() -> dict[str, str] | None:
    """State of each node by name; None while slurmctld does not answer."""
    argv = ["sinfo", "--noheader", "--Node", "--format=%N %T"]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def _start_api(argv: Sequence[str]) -> None:
    with API_LOG.open("w") as log:
        emulator = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    deadline = time.monotonic() + DEADLINE
    while not _api_answers():
        if emulator.poll() is not None or time.monotonic() > deadline:
            raise BootError(f"the emulated HyperPod API does not answer; its log ends:\n{_tail(API_LOG)}")
        time.sleep(_POLL)


def _api_answers() -> bool:
    connection = HTTPConnection("127.0.0.1", API_PORT, timeout=5)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True


def _run(*argv: str) -> None:
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BootError(f"{argv[0]} failed: {_last_lines(done.stderr or done.stdout)}")


def _tail(path: Path) -> str:
    return _last_lines(path.read_text(errors="replace")) if path.exists() else "(no log)"


def _last_lines(text: str) -> str:
    return "\n".join(line[:_LOG_WIDTH] for line in text.strip().splitlines()[-_LOG_LINES:])


def _let_go_of_output() -> None:
    """Stdout is the pipe of a program that is about to end."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    os.close(null)


def _reap() -> None:
    """Zombies of daemons and jobs would keep Slurm from ever calling a job finished."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)


if __name__ == "__main__":
    main()
