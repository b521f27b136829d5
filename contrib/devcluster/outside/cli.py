"""The command line: reads options, does what they say, prints the outcome."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import NoReturn

from outside import cluster, enter, recipe, root, status
from outside.errors import CannotRunError, DevclusterError, MisuseError
from outside.progress import say

_HERE = Path(__file__).resolve().parent.parent
_PYPROJECT = _HERE.parent.parent / "pyproject.toml"
_DEFAULT_SCENARIO = "ready"
_STEP_LAYOUTS = ("25.11", "26.05")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/venv/bin"
_DEFAULT_NAME = "dev"


def main(argv: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupted)
    try:
        options = _parser().parse_args(argv)
        _check_machine()
        code: int = options.run(options)
    except DevclusterError as error:
        say(str(error))
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        say("interrupted")
        return 128 + (interrupt.args[0] if interrupt.args else signal.SIGINT)
    return code


def _interrupted(number: int, _frame: FrameType | None) -> NoReturn:
    """Requests to end do what Ctrl-C does: clean up, then go."""
    raise KeyboardInterrupt(number)


def _check_machine() -> None:
    if sys.platform != "linux":
        raise CannotRunError("this is not Linux: run it in a Linux machine or VM")
    if os.geteuid() != 0:
        raise CannotRunError("needs root for namespaces and mounts: run it with sudo, or in a VM or container as root")


def _up(options: argparse.Namespace) -> int:
    name = cluster.check_name(options.name)
    if _runs_already(name, options):
        return 0
    settings = _settings(options)
    base = root.ensure(recipe.current(_PYPROJECT))
    with cluster.locked():
        if _runs_already(name, options):
            return 0
        if cluster.end(name):
            say(f"took away what was left of an earlier cluster {name!r}")
        record = cluster.start(name, base, settings)
    say(f"{name} runs: {record.nodes} nodes idle, scenario {settings.scenario}. Try: devcluster exec{_name_option(name)} -- sinfo")
    return 0


def _runs_already(name: str, options: argparse.Namespace) -> bool:
    """True if it does, in the way that is asked for. Raises `MisuseError` if in another."""
    record = cluster.read(name)
    if record is None or not record.ready or not record.alive():
        return False
    asked = _settings(options)
    for field in ("scenario", "speed", "layout", "step_layout"):
        was, now = getattr(record.settings, field), getattr(asked, field)
        if getattr(options, field) is not None and was != now:
            what = field.replace("_", "-")
            raise MisuseError(f"{name} runs already, with {what} {was}: devcluster down{_name_option(name)} first")
    say(f"{name} runs already: {record.nodes} nodes at the start, scenario {record.settings.scenario}")
    return True


def _settings(options: argparse.Namespace) -> cluster.Settings:
    scenario: str = options.scenario or _DEFAULT_SCENARIO
    if "/" in scenario or scenario.endswith((".yaml", ".yml")):
        scenario = _existing(scenario, "--scenario")
    return cluster.Settings(
        scenario=scenario,
        speed=options.speed,
        layout=_existing(options.layout or str(_HERE / "layout.yaml"), "--layout"),
        step_layout=options.step_layout or _STEP_LAYOUTS[0],
    )


def _existing(file: str, option: str) -> str:
    path = Path(file).absolute()
    if not path.is_file():
        raise MisuseError(f"{option} {file}: no such file")
    return str(path)


def _name_option(name: str) -> str:
    return "" if name == _DEFAULT_NAME else f" --name {name}"


def _down(options: argparse.Namespace) -> int:
    with cluster.locked():
        for name in cluster.names() if options.all else [cluster.check_name(options.name)]:
            say(f"{name} is down" if cluster.end(name) else f"no cluster {name!r} runs")
    return 0


def _exec(options: argparse.Namespace) -> int:
    record = cluster.running(options.name)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    user = enter.ROOT if options.root else enter.ALICE
    return enter.run(record.init, command or ["/bin/bash"], user, _environment(record, user, options.env))


def _environment(record: cluster.Record, user: enter.User, extra: Sequence[str]) -> dict[str, str]:
    """All that a command in the cage sees of variables: nothing of this shell's leaks in."""
    given = {}
    for assignment in extra:
        name, equals, value = assignment.partition("=")
        if not name or not equals:
            raise MisuseError(f"--env {assignment}: expected NAME=VALUE")
        given[name] = value
    return {
        "PATH": _PATH,
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": "/bin/bash",
        "LANG": "C.UTF-8",
        "TERM": os.environ.get("TERM", "dumb"),
        "AWS_REGION": "us-west-2",
        "AWS_ACCESS_KEY_ID": "devcluster",
        "AWS_SECRET_ACCESS_KEY": "devcluster",
        "AWS_ENDPOINT_URL_SAGEMAKER": f"http://127.0.0.1:{record.api_port}",
        "HYP_SUBMIT_CLUSTER": record.cluster,
        **given,
    }


def _status(options: argparse.Namespace) -> int:
    names = [cluster.check_name(options.name)] if options.name else cluster.names()
    found = [status.of(record) for record in map(cluster.read, names) if record is not None]
    if options.json:
        print(json.dumps({"clusters": [asdict(one) for one in found]}, indent=2))
    elif found:
        print("\n".join(map(status.text, found)))
    else:
        say("no cluster runs")
    return 0


def _build(options: argparse.Namespace) -> int:
    wanted = recipe.current(_PYPROJECT)
    with root.locked():
        if options.force and root.path_of(wanted).is_dir():
            _check_unused(root.path_of(wanted))
            root.remove(root.path_of(wanted))
    say(f"the root folder is {root.ensure(wanted)}")
    return 0


def _clean(_options: argparse.Namespace) -> int:
    with root.locked():
        for folder in root.cached():
            _check_unused(folder)
        for folder in root.cached():
            root.remove(folder)
            say(f"removed {folder}")
        root.remove_partial()
    return 0


def _check_unused(folder: Path) -> None:
    for name in cluster.names():
        record = cluster.read(name)
        if record is not None and record.root == str(folder) and record.alive():
            raise MisuseError(f"{folder} is in use by {name}: devcluster down{_name_option(name)} first")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="devcluster", allow_abbrev=False,
        description="A real Slurm with simulated nodes and an emulated HyperPod API, in a cage of namespaces.",
    )  # fmt: skip
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        added.set_defaults(run=run)
        return added

    up = command("up", _up, "start a cluster, and build the root folder first if need be")
    up.add_argument("--name", default=_DEFAULT_NAME)
    up.add_argument("--scenario", metavar="NAME|FILE", help=f"what happens to the instances (default {_DEFAULT_SCENARIO})")
    up.add_argument("--speed", type=_positive, metavar="X", help="emulated seconds in a real one (default: the scenario's)")
    up.add_argument("--layout", metavar="FILE", help="nodes, blocks, partitions and groups (default layout.yaml)")
    up.add_argument("--step-layout", choices=_STEP_LAYOUTS, help="whose order of a step's tasks (default 25.11)")

    down = command("down", _down, "end a cluster; nothing of it is left")
    which = down.add_mutually_exclusive_group()
    which.add_argument("--name", default=_DEFAULT_NAME)
    which.add_argument("--all", action="store_true", help="every cluster of this machine")

    status_ = command("status", _status, "what runs")
    status_.add_argument("--name", help="only this cluster")
    status_.add_argument("--json", action="store_true")

    exec_ = command("exec", _exec, "run a command in a cluster, as alice; a shell if none is given")
    exec_.add_argument("--name", default=_DEFAULT_NAME)
    exec_.add_argument("--root", action="store_true", help="as root")
    exec_.add_argument("--env", action="append", default=[], metavar="K=V", help="one more variable")
    exec_.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")

    build = command("build", _build, "build the root folder only")
    build.add_argument("--force", action="store_true", help="even if it is there")

    command("clean", _clean, "remove the cached root folders")
    return parser


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return number
