"""Processes by pid *and* start time, so that a pid that was given to another process is never taken for ours."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Process(NamedTuple):
    """`started` is in clock ticks since boot, as the kernel gives it."""

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        """The process that has this pid now; ProcessLookupError if there is none."""
        started = _start_time(pid)
        if started is None:
            raise ProcessLookupError(pid)
        return cls(pid, started)

    def alive(self) -> bool:
        """Whether this very process is there (a zombie is not)."""
        return _start_time(self.pid) == self.started

    def kill(self, patience: float) -> bool:
        """SIGKILL it and wait at most `patience` seconds for its end. True if it is gone, also if it was before."""
        with self.handle() as descriptor:
            if descriptor is None:
                return True
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            return self.wait(patience)

    def wait(self, patience: float) -> bool:
        """Wait at most `patience` seconds for its end. True if it is gone."""
        with self.handle() as descriptor:
            return descriptor is None or bool(select.select([descriptor], [], [], patience)[0])

    @contextmanager
    def handle(self) -> Iterator[int | None]:
        """A pidfd that refers to this very process for as long as it is open; None if the process is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            yield None
            return
        try:
            yield descriptor if self.alive() else None
        finally:
            os.close(descriptor)


def _start_time(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before may hold anything
    state, started = fields[0], fields[19]
    return None if state in "ZX" else int(started)
