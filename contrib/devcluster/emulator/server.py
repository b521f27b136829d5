"""The emulated API over plain HTTP: AWS's JSON 1.1, `POST /` with the operation in X-Amz-Target.

Signatures are not looked at: any credentials will do.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from .answers import ACCOUNT, Api
from .course import Course
from .requests import ApiError
from .scenario import Fault

FAULTS = {
    "AccessDeniedException": (
        400,
        (
            f"User: arn:aws:sts::{ACCOUNT}:assumed-role/HyperPodExecutionRole/SageMaker is not authorized to perform: "
            "sagemaker:{operation} on resource: {arn}"
        ),
    ),
    "ExpiredTokenException": (400, "The security token included in the request is expired"),
    "InternalFailure": (500, "The request processing has failed because of an unknown error."),
    "ServiceUnavailable": (503, "The service is unavailable. Please try again."),
    "ThrottlingException": (400, "Rate exceeded"),
}
"""Errors of the timeline -> their HTTP status and message. `hang` is none of them: it has no answer at all."""

HANG_TICK = 0.05
"""Real seconds between two looks at whether a hanging request may end."""


class Server(ThreadingHTTPServer):
    """Serves one emulated cluster on 127.0.0.1, each connection in a thread of its own.

    `started` is the start in seconds since the epoch, `now` says how many emulated seconds have passed since then.
    Port 0 takes a free one; `url` tells which.
    """

    daemon_threads = True

    def __init__(self, course: Course, *, started: float, now: Callable[[], float], port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.api = Api(course, started, now)
        self.course = course
        self.now = now
        self.stopping = threading.Event()

    @property
    def url(self) -> str:
        """What AWS_ENDPOINT_URL_SAGEMAKER has to be."""
        return f"http://127.0.0.1:{self.server_port}"

    def shutdown(self) -> None:
        """Stop serving; requests that hang are let go."""
        self.stopping.set()
        super().shutdown()

    def answer(self, operation: str, body: bytes) -> dict[str, Any] | None:
        """The answer to one request; None to end the connection without any. Raises `ApiError`."""
        fault = self.course.fault_at(self.now(), operation)
        if fault is not None and fault.error == "hang":
            self._hang(fault)
            return None
        if fault is not None:
            status, message = FAULTS[fault.error]
            raise ApiError(fault.error, fault.message or message.format(operation=operation, arn=self.api.arn), status)
        try:
            request = json.loads(body or b"{}")
        except ValueError:
            raise ApiError("SerializationException", "The request is not JSON.") from None
        return self.api.answer(operation, request)

    def _hang(self, fault: Fault) -> None:
        while self.now() < fault.until and not self.stopping.wait(HANG_TICK):
            pass


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        operation = self.headers.get("X-Amz-Target", "").removeprefix("SageMaker.")
        try:
            answer = self.server.answer(operation, body)
        except ApiError as error:
            self._send(error.status, {"__type": error.code, "Message": error.message})
            return
        if answer is None:
            self.close_connection = True
        else:
            self._send(200, answer)

    def _send(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: Any) -> None:
        """No line per request: clients poll."""
