"""Reads scenario files, whose format is in the docstring of `scenario`, and refuses those that make no sense."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import yaml
from inside.layout import Group, Layout

from .requests import OPERATIONS
from .scenario import (
    FAULTS,
    Announce,
    Arrive,
    Bounds,
    CapacityError,
    ClusterStatus,
    Create,
    DeepHealthCheck,
    Delete,
    Durations,
    Fail,
    FailNode,
    Fault,
    GroupStart,
    GroupStatus,
    Happening,
    Level,
    Replace,
    Scenario,
    ScenarioError,
    Selection,
    SetBounds,
    SetClusterStatus,
    SetStatus,
    hosts_of,
)

T = TypeVar("T")
D = TypeVar("D")
E = TypeVar("E", bound=StrEnum)
Convert = Callable[[Any, str], T]
"""Makes a value of the file, found at a path, into what it means. Raises `_Invalid`."""

Hosts = Mapping[str, tuple[str, ...]]
"""The host names of each group of the layout."""

FOLDER = Path(__file__).with_name("scenarios")
"""Where the scenarios that may be called by their bare name are."""


def find(name: str) -> Path:
    """The file of a scenario: `name` is a path (it has a slash or ends in .yaml) or the name of one in `FOLDER`."""
    if "/" in name or name.endswith(".yaml"):
        return Path(name)
    path = FOLDER / f"{name}.yaml"
    if not path.exists():
        known = ", ".join(sorted(file.stem for file in FOLDER.glob("*.yaml")))
        raise ScenarioError(f"no scenario {name!r}; there are {known}, or give the path of a file")
    return path


def read(path: Path, layout: Layout) -> Scenario:
    """Read and check a scenario file for a cluster of that layout. Raises `ScenarioError`."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ScenarioError(f"{path}: cannot be read: {reason}") from error
    try:
        return _scenario(path, _Fields(raw, "$"), layout)
    except _Invalid as error:
        raise ScenarioError(f"{path}: {error}") from error


class _Invalid(Exception):
    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")


class _Fields:
    """A mapping of the file, whose fields are taken one by one; `done` objects to those that nobody took."""

    def __init__(self, raw: Any, path: str) -> None:
        if raw is None:
            raw = {}
        if not isinstance(raw, dict):
            raise _Invalid(path, f"expected a mapping, found {raw!r}")
        self.path = path
        self._raw: dict[Any, Any] = raw
        self._asked: list[str] = []

    def __iter__(self) -> Iterator[Any]:
        return iter(self._raw)

    def take(self, key: str, convert: Convert[T]) -> T:
        """A field that must be there."""
        if key not in self._raw:
            raise _Invalid(self.path, f"{key} is missing")
        self._asked.append(key)
        return convert(self._raw[key], f"{self.path}.{key}")

    def get(self, key: str, convert: Convert[T], default: D) -> T | D:
        """A field that may be left out."""
        self._asked.append(key)
        return convert(self._raw[key], f"{self.path}.{key}") if key in self._raw else default

    def done(self) -> None:
        for key in self._raw:
            if key not in self._asked:
                raise _Invalid(f"{self.path}.{key}", f"unknown; {_known(str(key), self._asked)}")


def _known(word: str, known: Iterable[str]) -> str:
    known = list(known)
    close = difflib.get_close_matches(word, known, 1)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def _text(raw: Any, path: str) -> str:
    if not isinstance(raw, str) or not raw.strip():
        raise _Invalid(path, f"expected a text, found {raw!r}")
    return raw


def _flag(raw: Any, path: str) -> bool:
    if not isinstance(raw, bool):
        raise _Invalid(path, f"expected true or false, found {raw!r}")
    return raw


def _true(raw: Any, path: str) -> bool:
    if raw is not True:
        raise _Invalid(path, f"expected true, found {raw!r}; leave the entry out otherwise")
    return True


def _count(raw: Any, path: str) -> int:
    if not isinstance(raw, int) or isinstance(raw, bool) or raw < 0:
        raise _Invalid(path, f"expected a number of instances, found {raw!r}")
    return raw


def _speed(raw: Any, path: str) -> float:
    if not isinstance(raw, int | float) or isinstance(raw, bool) or raw <= 0:
        raise _Invalid(path, f"expected a number above 0 (emulated seconds in a real one), found {raw!r}")
    return float(raw)


_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_DURATION = re.compile(r"(?:(?P<d>\d+)d)?(?:(?P<h>\d+)h)?(?:(?P<m>\d+)m)?(?:(?P<s>\d+)s)?")


def _duration(raw: Any, path: str) -> float:
    match = _DURATION.fullmatch(raw) if isinstance(raw, str) and raw else None
    if match is None:
        raise _Invalid(path, f"expected a duration such as 90s, 6m or 1h30m, found {raw!r}")
    return float(sum(int(number) * _UNITS[unit] for unit, number in match.groupdict().items() if number))


def _one_of(known: Iterable[str]) -> Convert[str]:
    names = list(known)

    def convert(raw: Any, path: str) -> str:
        if raw not in names:
            raise _Invalid(path, f"unknown value {raw!r}; {_known(str(raw), names)}")
        return str(raw)

    return convert


def _member(kind: type[E], allowed: Iterable[E] | None = None) -> Convert[E]:
    name = _one_of(allowed or kind)
    return lambda raw, path: kind(name(raw, path))


def _list(convert: Convert[T]) -> Convert[tuple[T, ...]]:
    def convert_all(raw: Any, path: str) -> tuple[T, ...]:
        if not isinstance(raw, list) or not raw:
            raise _Invalid(path, f"expected a list, found {raw!r}")
        return tuple(convert(entry, f"{path}[{index}]") for index, entry in enumerate(raw))

    return convert_all


def _selection(hosts: tuple[str, ...]) -> Convert[Selection]:
    names = _list(_one_of(hosts))

    def convert(raw: Any, path: str) -> Selection:
        if raw == "all":
            return None
        if isinstance(raw, list):
            return names(raw, path)
        if isinstance(raw, int) and not isinstance(raw, bool) and raw >= 0:
            return raw
        raise _Invalid(path, f"expected a number of instances, 'all' or a list of host names, found {raw!r}")

    return convert


def _bounds(default: Bounds, most: int) -> Convert[Bounds]:
    def convert(raw: Any, path: str) -> Bounds:
        fields = _Fields(raw, path)
        bounds = Bounds(fields.get("min", _count, default.minimum), fields.get("target", _count, default.target))
        fields.done()
        return _possible(bounds, most, path)

    return convert


def _possible(bounds: Bounds, most: int, path: str) -> Bounds:
    if bounds.target > most:
        raise _Invalid(path, f"target is {bounds.target}, but the layout has only {most} instances for this group")
    if bounds.minimum > bounds.target:
        raise _Invalid(path, f"min ({bounds.minimum}) is above target ({bounds.target})")
    return bounds


def _scenario(source: Path, fields: _Fields, layout: Layout) -> Scenario:
    hosts = hosts_of(layout)
    cluster = _Fields(fields.get("cluster", lambda raw, _: raw, None), "$.cluster")
    continuous = cluster.get("continuous", _flag, True)
    age = cluster.get("age", _duration, 2 * 86400.0)
    status = cluster.get("status", _member(ClusterStatus), ClusterStatus.IN_SERVICE)
    cluster.done()

    groups = _Fields(fields.take("groups", lambda raw, _: raw), "$.groups")
    for name in groups:
        if name not in layout.groups:
            raise _Invalid(f"$.groups.{name}", f"not a group of the layout; {_known(str(name), layout.groups)}")
    entries = fields.get("timeline", _list(lambda raw, path: _happening(_Fields(raw, path), hosts)), ())
    scenario = Scenario(
        name=source.stem,
        source=source,
        summary=fields.take("summary", _text),
        speed=fields.get("speed", _speed, 60.0),
        durations=fields.get("durations", _durations, _durations({}, "$.durations")),
        continuous=continuous,
        cluster_status=status,
        age=age,
        groups={name: groups.take(name, _group(layout.groups[name], hosts[name], age)) for name in groups},
        timeline=tuple(sorted((e for e in entries if not isinstance(e, Fault)), key=lambda entry: entry.at)),
        faults=tuple(entry for entry in entries if isinstance(entry, Fault)),
    )
    fields.done()
    return scenario


def _durations(raw: Any, path: str) -> Durations:
    fields = _Fields(raw, path)
    durations = Durations(
        boot=fields.get("boot", _duration, 360.0),
        slurm=fields.get("slurm", _duration, 90.0),
        listing=fields.get("listing", _duration, 0.0),
        terminate=fields.get("terminate", _duration, 900.0),
        deadline=fields.get("deadline", _duration, 10800.0),
    )
    fields.done()
    return durations


def _group(group: Group, hosts: tuple[str, ...], cluster_age: float) -> Convert[GroupStart]:
    def convert(raw: Any, path: str) -> GroupStart:
        fields = _Fields(raw, path)
        status = fields.get("status", _member(GroupStatus), GroupStatus.IN_SERVICE)
        creating, waiting = status is GroupStatus.CREATING, status in (GroupStatus.CREATING, GroupStatus.UPDATING)
        target = fields.get("target", _count, len(hosts))
        minimum = fields.get("min", _count, 0 if group.partition is not None else min(1, target))
        bounds = _possible(Bounds(minimum, target), len(hosts), path)
        present = _present(fields.get("present", _selection(hosts), None), hosts, target, f"{path}.present")
        if waiting and len(present) >= minimum:
            raise _Invalid(f"{path}.status", f"a group with {len(present)} instances and min {minimum} is not {status}")
        if status is GroupStatus.UPDATING and "before" not in fields:
            raise _Invalid(path, "before is missing: the min and target that an Updating group is rolled back to")
        start = GroupStart(
            name=group.name,
            path=path,
            status=status,
            bounds=bounds,
            before=fields.get("before", _bounds(bounds, len(hosts)), Bounds(0, 0) if creating else bounds),
            present=present,
            age=fields.get("age", _duration, 0.0 if waiting else cluster_age),
            flexible=fields.get("flexible", _list(_text), ()),
        )
        fields.done()
        return start

    return convert


def _present(selection: Selection, hosts: tuple[str, ...], target: int, path: str) -> tuple[str, ...]:
    number = target if selection is None else selection if isinstance(selection, int) else len(selection)
    if number > target:
        raise _Invalid(path, f"{number} instances are more than the target ({target})")
    return tuple(host for host in hosts if host in selection) if isinstance(selection, tuple) else hosts[:number]


def _happening(fields: _Fields, hosts: Hosts) -> Happening:
    actions = [key for key in fields if key in _ACTIONS]
    if len(actions) != 1:
        found = ", ".join(actions) or "none"
        raise _Invalid(fields.path, f"expected exactly one of {', '.join(_ACTIONS)}; found {found}")
    happening = _ACTIONS[actions[0]](fields, hosts, fields.take("at", _duration), f"{fields.path}.{actions[0]}")
    fields.done()
    return happening


def _of_group(fields: _Fields, hosts: Hosts) -> str:
    return fields.take("group", _one_of(hosts))


def _any_host(hosts: Hosts) -> Convert[str]:
    return _one_of(host for group in hosts.values() for host in group)


def _arrive(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    group = _of_group(fields, hosts)
    selection = fields.take("arrive", _selection(hosts[group]))
    return Arrive(at, path, group, selection, fields.get("checks", _duration, 0.0))


def _capacity_error(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    message = fields.take("capacity_error", lambda raw, path: None if raw is True else _text(raw, path))
    return CapacityError(at, path, _of_group(fields, hosts), message)


def _set(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    change = _Fields(fields.take("set", lambda raw, _: raw), path)
    minimum, target = change.get("min", _count, None), change.get("target", _count, None)
    change.done()
    if minimum is None and target is None:
        raise _Invalid(path, "expected min, target or both")
    return SetBounds(at, path, _of_group(fields, hosts), minimum, target)


def _create(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    group = _of_group(fields, hosts)
    most = len(hosts[group])
    return Create(at, path, group, fields.take("create", _bounds(Bounds(0, most), most)))


def _fail(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    return Fail(at, path, _of_group(fields, hosts), fields.take("fail", _text))


def _status(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    allowed = (GroupStatus.DEGRADED, GroupStatus.SYSTEM_UPDATING, GroupStatus.IN_SERVICE)
    return SetStatus(at, path, _of_group(fields, hosts), fields.take("status", _member(GroupStatus, allowed)))


def _deep_health_check(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    group = _of_group(fields, hosts)
    selection = fields.take("deep_health_check", _selection(hosts[group]))
    return DeepHealthCheck(at, path, group, selection, fields.take("for", _duration))


def _delete(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    fields.take("delete", _true)
    return Delete(at, path, _of_group(fields, hosts))


def _fail_node(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    return FailNode(at, path, fields.take("fail_node", _any_host(hosts)), fields.take("message", _text))


def _replace(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    return Replace(at, path, fields.take("replace", _any_host(hosts)))


def _cluster(fields: _Fields, _: Hosts, at: float, path: str) -> Happening:
    return SetClusterStatus(at, path, fields.take("cluster", _member(ClusterStatus)), _message(fields))


def _event(fields: _Fields, hosts: Hosts, at: float, path: str) -> Happening:
    group = _of_group(fields, hosts) if "group" in fields else None
    level = fields.get("level", _member(Level), Level.INFO)
    return Announce(at, path, fields.take("event", _text), level, group, _message(fields))


def _api_error(fields: _Fields, _: Hosts, at: float, path: str) -> Happening:
    return Fault(
        at=at,
        path=path,
        error=fields.take("api_error", _one_of(FAULTS)),
        operations=frozenset(fields.get("operations", _list(_one_of(OPERATIONS)), tuple(OPERATIONS))),
        until=at + fields.get("for", _duration, float("inf")),
        message=_message(fields),
    )


def _message(fields: _Fields) -> str | None:
    return fields.take("message", _text) if "message" in fields else None


_ACTIONS: dict[str, Callable[[_Fields, Hosts, float, str], Happening]] = {
    "arrive": _arrive,
    "capacity_error": _capacity_error,
    "set": _set,
    "create": _create,
    "fail": _fail,
    "status": _status,
    "deep_health_check": _deep_health_check,
    "delete": _delete,
    "fail_node": _fail_node,
    "replace": _replace,
    "cluster": _cluster,
    "event": _event,
    "api_error": _api_error,
}
"""The key that says what happens -> how the rest of its entry is read."""
