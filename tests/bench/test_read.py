"""How long hyp-submit takes, as ratios to what Slurm's own commands and Python take in the same run: `make bench`.

Nothing here fails for being slow: the table at the end says what was aimed at, and whether it was met.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from bench.probe import Contender, Result
from bench.table import Row
from live.devcluster import PROGRAM, DevCluster, devcluster

ROOT = Path(__file__).parents[2]
PROBE = "tests/bench/probe.py"
CHECKOUT = "/opt/hyp-submit"
"""Where a devcluster has this checkout."""

ROUNDS = 5
CAP = 6_000_000_000
PATIENCE = 60.0

READERS = ("pyslurm", "text")
TEXT_FORMS = "scontrol show nodes --oneliner + squeue"
JSON_FORMS = "scontrol show nodes --json + squeue --json"
IN_PROCESS = """
import time
from datetime import UTC, datetime
from hyp_submit.slurm import read
def once():
    begin = time.perf_counter()
    read(lambda: datetime.now(UTC))
    return time.perf_counter() - begin
print(min(once() for _ in range(5)))
"""

Tell = Callable[[Row], None]


def contender(*commands: list[str], tells: bool = False, cap: int | None = None, reader: str = "") -> Contender:
    # An empty cluster's name: Slurm alone is read. HyperPod's nodes come in pages of 100, one after another.
    env = {"HYP_SUBMIT_CLUSTER": "", **({"HYP_SUBMIT_READER": reader} if reader else {})}
    return {"commands": list(commands), "env": env, "cap": cap, "patience": PATIENCE, "tells": tells}


def race(argv: list[str], contenders: dict[str, Contender], rounds: int = ROUNDS) -> dict[str, Result]:
    order = json.dumps({"rounds": rounds, "contenders": contenders})
    done = subprocess.run(argv, input=order, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    results: dict[str, Result] = json.loads(done.stdout)
    return results


@pytest.fixture(scope="module")
def scale() -> Iterator[DevCluster]:
    if os.geteuid() != 0:
        pytest.skip("the devcluster needs root")
    subprocess.run([*PROGRAM, "build"], check=True)  # minutes, the first time
    with devcluster("bench", "--scale") as cluster:
        yield cluster


def inside(cluster: DevCluster) -> list[str]:
    return cluster.argv("/opt/venv/bin/python", f"{CHECKOUT}/{PROBE}")


def test_read(scale: DevCluster, benchmark: Any, tell: Tell) -> None:
    snapshots = {
        f"hyp-submit snapshot, {reader}": contender(["hyp-submit", "snapshot"], reader=reader) for reader in READERS
    }
    in_process = {
        f"slurm.read in process, {reader}": contender(
            ["/opt/venv/bin/python", "-c", IN_PROCESS], tells=True, reader=reader
        )
        for reader in READERS
    }
    text = contender(["scontrol", "show", "nodes", "--oneliner"], ["squeue"])
    heavy = contender(["scontrol", "show", "nodes", "--json"], ["squeue", "--json"], cap=CAP)
    ours = {**snapshots, **in_process}

    results = benchmark.pedantic(
        lambda: race(inside(scale), {**ours, TEXT_FORMS: text}) | race(inside(scale), {JSON_FORMS: heavy}, rounds=1),
        rounds=1,
    )

    for name in ours:
        tell(Row.of_times(name, results[name], TEXT_FORMS, results[TEXT_FORMS], goal=1.0))
    for name in ours:
        tell(Row.of_times(name, results[name], JSON_FORMS, results[JSON_FORMS], goal=1 / 20))
    for name in ours:
        tell(Row.of_memory(name, results[name], JSON_FORMS, results[JSON_FORMS], goal=1 / 10))


def test_plan(scale: DevCluster, benchmark: Any, tell: Tell) -> None:
    ask = ["--partition=gb200", "--nodes=36"]
    sizes = ["--framework=megatron", "--tp=4", "--ep=18", "--etp=1"]
    theirs = "sbatch --test-only"
    ours = {
        f"hyp-submit plan --json, {reader}": contender(["hyp-submit", "plan", "--json", *ask, *sizes], reader=reader)
        for reader in READERS
    }
    slurm = contender(["sbatch", "--test-only", *ask, "--segment=18", "--wrap=true"])

    results = benchmark.pedantic(lambda: race(inside(scale), {**ours, theirs: slurm}), rounds=1)

    for name in ours:
        tell(Row.of_times(name, results[name], theirs, results[theirs], goal=2.0))


def test_start_up(benchmark: Any, tell: Tell) -> None:
    program = shutil.which("hyp-submit", path=str(Path(sys.executable).parent))
    assert program
    theirs = 'python -c "import typer"'
    goals = {"hyp-submit --version": 1.5, "hyp-submit --help": 2.5}
    ours = {name: contender([program, *name.split()[1:]]) for name in goals}
    plain = contender([sys.executable, "-c", "import typer"])

    results = benchmark.pedantic(
        lambda: race([sys.executable, str(ROOT / PROBE)], {**ours, theirs: plain}, rounds=4 * ROUNDS), rounds=1
    )

    for name, goal in goals.items():
        tell(Row.of_times(name, results[name], theirs, results[theirs], goal=goal))
