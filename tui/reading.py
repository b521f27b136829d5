"""Reading the cluster without ever making the screen wait for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from textual.message import Message

from hyp_submit.model import Cluster
from hyp_submit.views import picture

from .messages import ReadDone, ReadFailed

EASE = 10
"""A read that took T is followed by a pause of at least this many times T, so that polling never loads a slow Slurm.

One that failed is followed by at least T: what it took was a timeout, and what was away is looked for again soon."""

LEAST_PAUSE = timedelta(seconds=1)


@dataclass(frozen=True)
class Source:
    """Where the cluster comes from."""

    badge: Literal["LIVE", "SNAPSHOT", "DEMO"]
    read: Callable[[], Cluster]
    """May take any time and raise anything; called on a thread of its own, never twice at once."""
    refresh: timedelta | None = None
    """The pause between two reads; None: read once, and again only when asked to."""

    @property
    def live(self) -> bool:
        """Whether time goes on for the cluster: its clock is the wall clock, not the moment of a snapshot."""
        return self.badge == "LIVE"


class Reader:
    """Reads on one thread at a time and posts what came of it.

    The thread is a daemon of its own, not a worker of Textual's: those run on asyncio's pool, which is joined when the
    program ends, so that one hanging read would hold up `q`.
    """

    def __init__(self, source: Source, post: Callable[[Message], object]) -> None:
        self._source = source
        self._post = post
        self._started: float | None = None

    @property
    def busy_for(self) -> timedelta | None:
        """How long the present read has been going on; None if there is none."""
        return None if self._started is None else timedelta(seconds=time.monotonic() - self._started)

    def start(self) -> None:
        """Begin a read, unless one is going on."""
        if self._started is None:
            self._started = time.monotonic()
            threading.Thread(target=self._run, args=(self._started,), name="reader", daemon=True).start()

    def finished(self) -> None:
        """To be called with each message: the next read may start."""
        self._started = None

    def pause(self, took: timedelta, *, failed: bool) -> timedelta | None:
        """How long to wait before the next read; None where nobody asked for one."""
        if self._source.refresh is None:
            return None
        return max(self._source.refresh, took * (1 if failed else EASE), LEAST_PAUSE)

    def _run(self, started: float) -> None:
        def took() -> timedelta:
            return timedelta(seconds=time.monotonic() - started)

        message: Message
        try:
            cluster = self._source.read()
            asked = took()
            message = ReadDone(picture(cluster), asked)
        except Exception as error:  # noqa: BLE001  whatever it is, the screen stays and says so
            message = ReadFailed(error, took())
        with suppress(RuntimeError):  # the app has ended meanwhile, and its event loop with it
            self._post(message)
