"""What the reading thread tells the app."""

from __future__ import annotations

from datetime import timedelta

from textual.message import Message

from hyp_submit.views import Picture


class ReadDone(Message):
    """The cluster was read, and worked out for showing."""

    def __init__(self, picture: Picture, took: timedelta) -> None:
        super().__init__()
        self.picture = picture
        self.took = took


class ReadFailed(Message):
    """The cluster could not be read this time."""

    def __init__(self, error: Exception, took: timedelta) -> None:
        super().__init__()
        self.error = error
        self.took = took
