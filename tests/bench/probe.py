"""Runs contenders in turns, each as processes of its own, and writes their best times and peak memories as JSON.

Standard library only: it runs on the host, and in a devcluster. JSON on stdin says what to do, in `Contender`s:

    {"rounds": 5, "contenders": {"squeue": {"commands": [["squeue"]], "cap": 6000000000, "patience": 60}}}
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import TypedDict


class Contender(TypedDict):
    """What is measured: commands one after another."""

    commands: list[list[str]]
    env: dict[str, str]
    cap: int | None
    """Bytes of address space that each command may take."""
    patience: float
    """Seconds after which a command is killed."""
    tells: bool
    """Whether it prints the seconds that count, rather than being timed from outside."""


class Result(TypedDict):
    """How it did at best; `failed` where it did not get to the end: then in all rounds, or the first time."""

    seconds: float
    memory: int
    failed: str | None


def race(contenders: Mapping[str, Contender], rounds: int) -> dict[str, Result]:
    """Every contender once a round, so that what else the machine does falls on all of them."""
    results: dict[str, Result] = {}
    for _ in range(rounds):
        for name, contender in contenders.items():
            before = results.get(name)
            if before is None or before["failed"] is None:
                now = _run(contender)
                results[name] = now if before is None or now["failed"] else _better(before, now)
    return results


def _better(one: Result, other: Result) -> Result:
    return {
        "seconds": min(one["seconds"], other["seconds"]),
        "memory": min(one["memory"], other["memory"]),
        "failed": None,
    }


def _run(contender: Contender) -> Result:
    total: Result = {"seconds": 0.0, "memory": 0, "failed": None}
    for argv in contender["commands"]:
        one = _measure(argv, contender)
        total["seconds"] += one["seconds"]
        total["memory"] = max(total["memory"], one["memory"])
        if one["failed"]:
            return {**total, "failed": one["failed"]}
    return total


def _measure(argv: Sequence[str], contender: Contender) -> Result:
    cap = contender["cap"]
    capped = [*(["prlimit", f"--as={cap}"] if cap else []), *argv]  # which execs: the pid stays the same
    begin = time.perf_counter()
    process = subprocess.Popen(
        capped,
        env={**os.environ, **contender["env"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE if contender["tells"] else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    said: list[str] = []
    assert process.stderr
    reader = threading.Thread(target=lambda stream: said.append(stream.read()), args=(process.stderr,))
    reader.start()
    watchdog = threading.Timer(contender["patience"], process.kill)
    watchdog.start()
    told = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    late = not watchdog.is_alive()
    watchdog.cancel()
    reader.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "seconds": float(told) if told and process.returncode == 0 else seconds,
        "memory": _peak(usage),
        "failed": _failure(process.returncode, late, cap, "".join(said)),
    }


def _peak(usage: resource.struct_rusage) -> int:
    """Bytes; Linux counts in KiB."""
    return usage.ru_maxrss * 1024


def _failure(code: int, late: bool, cap: int | None, said: str) -> str | None:
    if code == 0:
        return None
    if late:
        return "killed: too long"
    if cap and (code < 0 or "memory" in said.lower()):
        return "killed: memory"
    return f"exit {code}: {' '.join(said.split())[-200:]}"


if __name__ == "__main__":
    order = json.load(sys.stdin)
    json.dump(race(order["contenders"], order["rounds"]), sys.stdout)
