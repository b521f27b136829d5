"""The terminal UI: the cluster's blocks and its queue on one screen.

It knows the core only through `views`, and the outside world only through the `Source` that it is given. Reading goes
on in a thread of its own and comes back as messages; nothing that may take long runs on the thread that draws.
"""

from __future__ import annotations

from .app import run
from .reading import Source

__all__ = ["Source", "run"]
