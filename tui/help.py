"""The help: every key, and what the cells mean."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen

from hyp_submit.views import Condition

from .paint import Lines, Pen, Span

_KEY, _TEXT = 12, 23
"""Widths of the columns of keys and of what they do."""


class HelpScreen(ModalScreen[None]):
    """Closed by the key that opened it, or by any that means "away"."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,enter", "dismiss", "Close", id="close-help", tooltip="Close the help"),
    ]

    def __init__(self, keys: Sequence[tuple[str, str]], pen: Pen) -> None:
        super().__init__()
        self._keys = keys
        self._pen = pen

    def compose(self) -> ComposeResult:
        """A box in the middle; it scrolls where the screen is small."""
        lines = list(_lines(self._keys))
        with VerticalScroll(id="help"):
            text = Lines(self._pen, id="help-text", height=len(lines))
            text.show(*lines)
            yield text


def _lines(keys: Sequence[tuple[str, str]]) -> Iterable[list[Span]]:
    yield [("KEYS".ljust(_KEY + _TEXT), "faint"), ("NODES", "faint")]
    for pair, one in zip_longest(keys, Condition):
        key, text = pair or ("", "")
        line: list[Span] = [(key.ljust(_KEY), "strong"), (text.ljust(_TEXT), "plain")]
        yield [*line, (f"{one.glyph}  ", one.hue), (one.word, "plain")] if one else line
