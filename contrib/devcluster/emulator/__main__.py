"""Runs the emulated HyperPod API: `python -m emulator --layout FILE --scenario NAME` beside the folder `emulator`."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from pathlib import Path

from inside.layout import LayoutError, load
from inside.slurm import SlurmNodes

from .course import play
from .follow import Follower, slurm_nodes
from .reader import find, read
from .scenario import ScenarioError
from .server import Server


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C. Exit codes: 0, or 2 for a layout, scenario, option or port that cannot be used."""
    options = _options().parse_args(argv)
    try:
        layout = load(options.layout)
        course = play(layout, read(find(options.scenario), layout))
    except (LayoutError, ScenarioError) as error:
        print(f"emulator: {error}", file=sys.stderr)
        return 2
    if options.initial_nodes:
        print(*slurm_nodes(course, course.state_at(0)), sep="\n")
        return 0

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    speed: float = options.speed or course.scenario.speed
    started = time.time()
    origin = time.monotonic()

    def now() -> float:
        return (time.monotonic() - origin) * speed

    try:
        server = Server(course, started=started, now=now, port=options.port)
    except OSError as error:
        print(f"emulator: cannot listen on port {options.port}: {error}; choose another --port", file=sys.stderr)
        return 2
    follower = Follower(course, now, SlurmNodes(layout) if options.slurm else None)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="server", daemon=True)
    serving.start()
    print(f"listening on {server.url}, scenario {course.scenario.name} at {speed:g} x real time", flush=True)
    follower.start()
    stop.wait()
    follower.stop()
    server.shutdown()
    server.server_close()
    follower.join()
    return 0


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return speed


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m emulator", description="An emulated SageMaker HyperPod API on 127.0.0.1.", allow_abbrev=False
    )
    parser.add_argument("--layout", type=Path, required=True, metavar="FILE", help="what the cluster is made of")
    parser.add_argument("--scenario", required=True, metavar="NAME_OR_FILE", help="what happens to it")
    parser.add_argument(
        "--speed", type=_speed, metavar="X", help="emulated seconds in a real one, if not the scenario's"
    )
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: %(default)s)")
    parser.add_argument("--slurm", action="store_true", help="start and stop Slurm nodes as instances come and go")
    parser.add_argument("--initial-nodes", action="store_true", help="print the Slurm nodes of the start, and exit")
    return parser


if __name__ == "__main__":
    sys.exit(main())
