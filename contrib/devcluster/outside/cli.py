"""The command line: reads options, does what they say, and turns refusals into one message and an exit code."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from outside import records
from outside.errors import CannotRunError, DevclusterError
from outside.progress import say


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)
    try:
        options = _parser().parse_args(argv)
        _check_machine()
        return _command(options.subcommand)(options)
    except DevclusterError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        say("interrupted")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)


def _interrupted(number: int, _frame: FrameType | None) -> None:
    """Requests to end do what Ctrl-C does: clean up, then go."""
    raise KeyboardInterrupt(number)


def _check_machine() -> None:
    if sys.platform != "linux":
        raise CannotRunError("this is not Linux: run it in a Linux machine or VM")
    if os.geteuid() != 0:
        raise CannotRunError("needs root for namespaces and mounts: run it with sudo, or in a VM or container as root")


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The function behind a subcommand. `exec` is run all the time: it does not load what only the others need."""
    if name == "exec":
        from outside import enter  # noqa: PLC0415

        return enter.execute
    from outside import manage  # noqa: PLC0415

    return {
        "up": manage.up,
        "down": manage.down,
        "status": manage.show,
        "build": manage.build,
        "clean": manage.clean,
    }[name]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devcluster", allow_abbrev=False,
        description="A real Slurm with simulated nodes and an emulated HyperPod API, in a cage of namespaces.",
    )  # fmt: skip
    commands = parser.add_subparsers(dest="subcommand", required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, allow_abbrev=False)

    up = command("up", "start a cluster, and build the root folder first if need be")
    up.add_argument("--name", default=records.DEFAULT_NAME)
    scenario = f"what happens to the instances (default {records.DEFAULT_SCENARIO})"
    up.add_argument("--scenario", metavar="NAME|FILE", help=scenario)
    speed = "emulated seconds in a real one (default: the scenario's)"
    up.add_argument("--speed", type=_positive, metavar="X", help=speed)
    what = up.add_mutually_exclusive_group()
    what.add_argument("--layout", metavar="FILE", help="nodes, blocks, partitions and groups (default layout.yaml)")
    large = f"8,798 nodes without slurmds, and JOBS running jobs on them (default {records.SCALE_JOBS})"
    what.add_argument("--scale", type=_count, nargs="?", const=records.SCALE_JOBS, metavar="JOBS", help=large)
    up.add_argument("--step-layout", choices=records.STEP_LAYOUTS, help="whose order of a step's tasks (default 25.11)")

    down = command("down", "end a cluster; nothing of it is left")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--name", default=records.DEFAULT_NAME)
    which.add_argument("--all", action="store_true", help="every cluster of this machine")

    status_ = command("status", "what runs")
    status_.add_argument("--name", help="only this cluster")
    status_.add_argument("--json", action="store_true")

    exec_ = command("exec", "run a command in a cluster, as alice; a shell if none is given")
    exec_.add_argument("--name", default=records.DEFAULT_NAME)
    exec_.add_argument("--root", action="store_true", help="as root")
    exec_.add_argument("--env", action="append", default=[], metavar="K=V", help="one more variable")
    exec_.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")

    build = command("build", "build the root folder only")
    build.add_argument("--force", action="store_true", help="even if it is there")

    command("clean", "remove the cached root folders")
    return parser


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) > records.SCALE_JOBS:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to {records.SCALE_JOBS}, found {text!r}")
    return int(text)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return number
