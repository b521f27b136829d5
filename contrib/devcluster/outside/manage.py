"""The commands that start, end and show clusters, and that build and remove root folders."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from outside import cluster, recipe, records, root, status
from outside.errors import MisuseError
from outside.progress import say

_HERE = Path(__file__).resolve().parent.parent
_PYPROJECT = _HERE.parent.parent / "pyproject.toml"


def up(options: argparse.Namespace) -> int:
    """Start a cluster, unless it runs already."""
    name = records.check_name(options.name)
    if _runs_already(name, options):
        return 0
    settings = _settings(options)
    cluster.check_machine()
    base = root.ensure(recipe.current(_PYPROJECT))
    with cluster.locked():
        if _runs_already(name, options):
            return 0
        if cluster.end(name):
            say(f"took away what was left of an earlier cluster {name!r}")
        record = cluster.start(name, base, settings)
    jobs = f" and {record.jobs} jobs" if record.jobs else " idle"
    say(f"{name} runs: {record.nodes} nodes{jobs}, scenario {settings.scenario}")
    say(f"try: devcluster exec{records.option(name)} -- sinfo")
    return 0


def _runs_already(name: str, options: argparse.Namespace) -> bool:
    """True if it does, in the way that is asked for. Raises `MisuseError` if in another."""
    record = records.read(name)
    if record is None or not record.serves():
        return False
    asked = _settings(options)
    for field in ("scenario", "speed", "layout", "scale", "step_layout"):
        was, now = getattr(record.settings, field), getattr(asked, field)
        if getattr(options, field) is not None and was != now:
            how = f"with {field.replace('_', '-')} {was}" if was is not None else f"without --{field}"
            raise MisuseError(f"{name} runs already, {how}: devcluster down{records.option(name)} first")
    say(f"{name} runs already: {record.nodes} nodes at the start, scenario {record.settings.scenario}")
    return True


def _settings(options: argparse.Namespace) -> records.Settings:
    large = options.scale is not None
    scenario: str = options.scenario or (records.SCALE_SCENARIO if large else records.DEFAULT_SCENARIO)
    if "/" in scenario or scenario.endswith((".yaml", ".yml")):
        scenario = _existing(scenario, "--scenario")
    return records.Settings(
        scenario=scenario,
        speed=options.speed,
        layout=None if large else _existing(options.layout or str(_HERE / "layout.yaml"), "--layout"),
        step_layout=options.step_layout or records.STEP_LAYOUTS[0],
        scale=options.scale,
    )


def _existing(file: str, option: str) -> str:
    path = Path(file).absolute()
    if not path.is_file():
        raise MisuseError(f"{option} {file}: no such file")
    return str(path)


def down(options: argparse.Namespace) -> int:
    """End one cluster or all."""
    with cluster.locked():
        for name in records.names() if options.all else [records.check_name(options.name)]:
            say(f"{name} is down" if cluster.end(name) else f"no cluster {name!r} runs")
    return 0


def show(options: argparse.Namespace) -> int:
    """Print what runs."""
    names = [records.check_name(options.name)] if options.name else records.names()
    found = [status.of(record) for record in map(records.read, names) if record is not None]
    if options.json:
        print(json.dumps({"clusters": [asdict(one) for one in found]}, indent=2))
    elif found:
        print("\n".join(map(status.text, found)))
    else:
        say("no cluster runs")
    return 0


def build(options: argparse.Namespace) -> int:
    """Build the root folder, or say where it is."""
    cluster.check_machine()
    wanted = recipe.current(_PYPROJECT)
    with root.locked():
        if options.force and root.path_of(wanted).is_dir():
            _check_unused(root.path_of(wanted))
            root.remove(root.path_of(wanted))
    say(f"the root folder is {root.ensure(wanted)}")
    return 0


def clean(_options: argparse.Namespace) -> int:
    """Remove every root folder; refused as a whole while one is in use."""
    with root.locked():
        for folder in root.cached():
            _check_unused(folder)
        for folder in root.cached():
            root.remove(folder)
            say(f"removed {folder}")
        root.remove_partial()
    return 0


def _check_unused(folder: Path) -> None:
    for name in records.names():
        record = records.read(name)
        if record is not None and record.root == str(folder) and record.alive():
            raise MisuseError(f"{folder} is in use by {name}: devcluster down{records.option(name)} first")
