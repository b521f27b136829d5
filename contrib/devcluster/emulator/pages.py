"""Lists in pages, as the service gives them: MaxResults entries at a time, the next page for the NextToken of the last.

A token holds the time of its list, so that all pages show one moment, however much the cluster changes between them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .requests import JSON, ApiError

LENGTH = 100
"""Entries of a page where the request does not say: MaxResults' own limit. The service's default is not documented."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of which list a request asks for."""

    operation: str
    fingerprint: str
    """The same for all requests of one list: they differ in their token and perhaps in the size of their pages."""
    at: float
    """The time of the list, in emulated seconds since the start."""
    first: int
    length: int

    def of(self, member: str, entries: Sequence[Any]) -> dict[str, Any]:
        """The answer: this page's entries of the list under the name of its member, and a token if there are more."""
        end = self.first + self.length
        answer: dict[str, Any] = {member: list(entries[self.first : end])}
        if end < len(entries):
            token = json.dumps([self.operation, self.fingerprint, self.at, end])
            answer["NextToken"] = base64.urlsafe_b64encode(token.encode()).decode()
        return answer


def requested(operation: str, request: Mapping[str, JSON], now: float) -> Page:
    """The page that a checked request asks for; `now` is the time of a new list. Raises `ApiError` for a bad token."""
    filters = {name: value for name, value in request.items() if name not in ("NextToken", "MaxResults")}
    fingerprint = hashlib.sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:16]
    at, first = now, 0
    if "NextToken" in request:
        try:
            *issued_for, at, first = json.loads(base64.urlsafe_b64decode(request["NextToken"]))
        except (TypeError, ValueError):
            raise ApiError("ValidationException", "Invalid NextToken.") from None
        if issued_for != [operation, fingerprint]:
            raise ApiError("ValidationException", "NextToken was issued for another request.")
    return Page(operation, fingerprint, at, first, request.get("MaxResults", LENGTH))
