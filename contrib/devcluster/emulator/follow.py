"""Keeps a real Slurm in step with the emulated instances, and tells what happens to the groups.

This runs in its own thread: an actuator that is slow (a reconfiguration of a large Slurm) delays no answer of the API,
only Slurm itself, which then lags behind the API a little more.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from inside.slurm import SlurmError

from .course import Course
from .state import State

TICK = 0.1
"""Real seconds between two looks at the course."""

RETRY = 2.0
"""Real seconds after which an actuator that failed is tried again."""


class Actuator(Protocol):
    """Brings Slurm nodes into being and takes them away, by name."""

    def present(self) -> tuple[str, ...]: ...
    def arrive(self, names: Iterable[str], /) -> None: ...
    def leave(self, names: Iterable[str], /) -> None: ...


def slurm_nodes(course: Course, state: State) -> tuple[str, ...]:
    """The Slurm nodes that there should be, in the layout's order; controllers and login nodes are none."""
    registered = state.registered()
    return tuple(name for name in course.layout.nodes if name in registered)


def summary(state: State) -> dict[str, str]:
    """One line about each group that exists."""
    return {
        name: f"{group.status}, {group.current} of {group.bounds.target} instances, min {group.bounds.minimum}"
        for name, group in state.groups.items()
    }


class Follower(threading.Thread):
    """Follows a course until `stop` is called, on a clock of emulated seconds since the start."""

    def __init__(
        self,
        course: Course,
        now: Callable[[], float],
        actuator: Actuator | None,
        say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
    ) -> None:
        super().__init__(name="follower", daemon=True)
        self._course = course
        self._now = now
        self._actuator = actuator
        self._say = say
        self._stopping = threading.Event()
        self._told: dict[str, str] = {}
        self._done: tuple[str, ...] | None = None
        """The nodes that the actuator has last been brought to; None when it has to be asked."""

    def stop(self) -> None:
        """End the thread; an actuator at work finishes first."""
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(self.step()):
            pass

    def step(self) -> float:
        """Do what is due now; says after how many real seconds to look again."""
        now = self._now()
        state = self._course.state_at(now)
        self._tell(now, summary(state))
        if self._actuator is None:
            return TICK
        wanted = slurm_nodes(self._course, state)
        try:
            self._drive(self._actuator, wanted)
        except (SlurmError, OSError) as error:
            self._done = None
            self._say(f"Slurm could not be brought to {len(wanted)} nodes, will be tried again: {error}")
            return RETRY
        return TICK

    def _drive(self, actuator: Actuator, wanted: tuple[str, ...]) -> None:
        if wanted == self._done:
            return
        ours = set(self._course.layout.nodes)
        present = self._done if self._done is not None else tuple(n for n in actuator.present() if n in ours)
        leaving = tuple(name for name in present if name not in wanted)
        arriving = tuple(name for name in wanted if name not in present)
        if leaving:
            actuator.leave(leaving)
        if arriving:
            actuator.arrive(arriving)
        self._done = wanted

    def _tell(self, now: float, lines: dict[str, str]) -> None:
        minutes, seconds = divmod(int(now), 60)
        for name in {**self._told, **lines}:
            if self._told.get(name) != lines.get(name):
                self._say(f"{minutes // 60}:{minutes % 60:02}:{seconds:02} {name}: {lines.get(name, 'deleted')}")
        self._told = lines
