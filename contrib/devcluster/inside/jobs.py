"""Jobs that a cluster begins with: submitted by its users, and seen to have their nodes."""

from __future__ import annotations

import os
import pwd
import subprocess
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from inside import conf, slurm
from inside.scale import Batch

_CLIENT_CONFIG = Path("/run/slurm/client/slurm.conf")
_PATIENCE = 60.0
"""Seconds that slurmctld may take to give one more job its nodes."""
_POLL = 0.5


def submit(batches: Iterable[Batch]) -> None:
    """Submit these, several at a time. Raises `SlurmError`."""
    # On thousands of nodes sbatch takes half a second, nearly all of it for reading about nodes that it never needs.
    config = conf.client_conf((slurm.CONFIG / "slurm.conf").read_text(encoding="utf-8"))
    _CLIENT_CONFIG.parent.mkdir(exist_ok=True)
    _CLIENT_CONFIG.write_text(config, encoding="utf-8")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(_submit, batches))


def wait_for_nodes(jobs: int) -> None:
    """Return when so many jobs have nodes. Raises `SlurmError` when that makes no headway any more."""
    have = 0
    deadline = time.monotonic() + _PATIENCE
    while have < jobs:
        if time.monotonic() > deadline:
            raise slurm.SlurmError(f"{jobs - have} of {jobs} jobs wait for nodes that are free")
        time.sleep(_POLL)
        before, have = have, len(_run(["squeue", "--noheader", "--states=CONFIGURING,RUNNING", "--format=%A"]).split())
        if have > before:
            deadline = time.monotonic() + _PATIENCE


def _submit(batch: Batch) -> None:
    user = pwd.getpwnam(batch.user)
    _run(
        ["sbatch", "--output=/dev/null", f"--chdir={user.pw_dir}", *batch.options(), "--wrap=sleep infinity"],
        user=user.pw_uid,
        group=user.pw_gid,
    )


def _run(argv: Sequence[str], user: int | None = None, group: int | None = None) -> str:
    done = subprocess.run(
        argv,
        user=user,
        group=group,
        extra_groups=None if user is None else [],
        env={**os.environ, "SLURM_CONF": str(_CLIENT_CONFIG)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise slurm.SlurmError(f"{' '.join(argv)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout
