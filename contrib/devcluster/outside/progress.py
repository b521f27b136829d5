"""One line on stderr for each step, with the time that it took; counting up where stderr is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_TICK = 0.2


@contextmanager
def step(title: str) -> Iterator[None]:
    """Shows `title` while its body runs, and how long that took after it. A body that fails is marked so."""
    begin = time.monotonic()
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(title, begin, done), daemon=True)
    live = sys.stderr.isatty()
    if live:
        ticker.start()
    outcome = "failed"
    try:
        yield
        outcome = ""
    finally:
        done.set()
        if live:
            ticker.join()
        _show(title, begin, outcome, "\n", live)


def say(message: str) -> None:
    """A line of narration."""
    print(f"devcluster: {message}", file=sys.stderr, flush=True)


def _tick(title: str, begin: float, done: threading.Event) -> None:
    while not done.wait(_TICK):
        _show(title, begin, "", "", live=True)


def _show(title: str, begin: float, outcome: str, end: str, live: bool) -> None:
    start = "\r" if live else ""
    text = f"{start}devcluster: {time.monotonic() - begin:6.1f} s  {title} {outcome}"
    print(text.rstrip(" "), end=end, file=sys.stderr, flush=True)
