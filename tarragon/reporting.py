"""Reports how far a training is, from within it: `tarragon.report(step=12, of=100, loss=0.3)`.

This file needs nothing but Python 3.7 or newer. Where Tarragon is not installed, copy it beside the program as
`tarragon.py`; `import tarragon` then finds it. Outside of a job that is asked to report, it does nothing.

The training never waits for a report and never fails because of one: a thread sends them, at most one in five seconds,
always the newest. What goes wrong is logged once.
"""

from __future__ import annotations

import atexit
import os
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all the rest
    from collections.abc import Mapping
    from typing import SupportsFloat, SupportsInt

__all__ = ["report"]

URL_VARIABLE = "KUBEFLOW_TRAINER_SERVER_URL"
CA_VARIABLE = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN_VARIABLE = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable with the path of a file
"""The contract of Kubeflow Trainer: where to report to, and the paths of the certificate and of the token."""

SECONDS_BETWEEN = 5.0
"""A training reports at most once in this time. Its last step is reported at once."""
MAX_SECONDS_BETWEEN = 60.0
"""The longest pause after failures: it doubles with each one."""
TIMEOUT = 5.0
"""Seconds that a request may take, and that the program waits for the last one before it ends."""
_SUCCESS = 300


def report(
    *,
    step: SupportsInt | None = None,
    of: SupportsInt | None = None,
    loss: SupportsFloat | None = None,
    **metrics: SupportsFloat,
) -> None:
    """Report that `step` steps of `of` are done, with the loss and other numbers, such as `accuracy=0.9`.

    Returns at once. Call it as often as you like, in every replica or in the one of rank 0 only.
    """
    if os.environ.get(URL_VARIABLE):
        given = metrics if loss is None else {"loss": loss, **metrics}
        _reporter.submit(step, of, given)


class _Report:
    """What one call of `report` said. The metrics are still what the program passed, such as tensors."""

    def __init__(self, step: int | None, total: int | None, metrics: Mapping[str, SupportsFloat]) -> None:
        self.step = step
        self.total = total
        self.metrics = metrics
        self.at = time.monotonic()

    @property
    def is_last(self) -> bool:
        return self.step is not None and self.step == self.total


class Reporter:
    """Sends the newest report from a thread of its own."""

    def __init__(self, seconds_between: float = SECONDS_BETWEEN) -> None:
        self._seconds_between = seconds_between
        self.reset()

    def reset(self) -> None:
        """Begin anew, without a thread: a forked process has none of its parent's."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._pending: _Report | None = None
        self._first: _Report | None = None
        self._is_sending = False
        self._is_ending = False
        self._failures = 0
        self._not_before = 0.0
        self._has_warned = False

    def submit(self, step: SupportsInt | None, total: SupportsInt | None, metrics: Mapping[str, SupportsFloat]) -> None:
        """Leave the report to the thread, in place of one that has not been sent yet."""
        try:
            submitted = _Report(None if step is None else int(step), None if total is None else int(total), metrics)
            with self._changed:
                if self._first is None or (submitted.step or 0) < (self._first.step or 0):
                    self._first = submitted
                self._pending = submitted
                if self._thread is None:
                    self._thread = threading.Thread(target=self._run, name="tarragon-report", daemon=True)
                    self._thread.start()
                self._changed.notify_all()
        except Exception as error:  # noqa: BLE001 - no mistake here may end a training
            self._warn(error)

    def flush(self, timeout: float = TIMEOUT) -> None:
        """Send what has not been sent yet, and wait for that. Called when the program ends."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._pending is None and not self._is_sending, timeout)

    def _run(self) -> None:
        while True:
            current = self._next()
            try:
                _post(_body(current, self._first))
                self._failures = 0
            except Exception as error:  # noqa: BLE001 - the network, the server, the token, the metrics: anything
                self._failures += 1
                self._warn(error)
            with self._changed:
                pause = min(self._seconds_between * 2 ** min(self._failures, 8), MAX_SECONDS_BETWEEN)
                self._not_before = time.monotonic() + pause
                self._is_sending = False
                self._changed.notify_all()

    def _next(self) -> _Report:
        """Wait for a report that may be sent, and take it."""
        with self._changed:
            while True:
                pending = self._pending
                wait = self._not_before - time.monotonic()
                if pending is not None and (wait <= 0 or pending.is_last or self._is_ending):
                    self._pending, self._is_sending = None, True
                    return pending
                self._changed.wait(None if pending is None else wait)

    def _warn(self, error: Exception) -> None:
        if not self._has_warned:
            import logging  # noqa: PLC0415 - as below

            self._has_warned = True
            logging.getLogger("tarragon").warning(
                "progress can't be reported: %s: %s; the training goes on", type(error).__name__, error
            )


def _body(current: _Report, first: _Report | None) -> bytes:
    import json  # noqa: PLC0415 - what a program that does not report needs not pay for

    metrics: dict[str, str] = {}
    status: dict[str, object] = {"lastUpdatedTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    if current.step is not None:
        metrics["step"] = str(current.step)
    if current.total is not None:
        metrics["total_steps"] = str(current.total)
    if current.step is not None and current.total is not None and current.total > 0:
        status["progressPercentage"] = max(0, min(100, 100 * current.step // current.total))
        remaining = _remaining_seconds(current.step, current.total, current.at, first)
        if remaining is not None:
            status["estimatedRemainingSeconds"] = remaining
    for name, value in current.metrics.items():
        metrics[name] = f"{float(value):.6g}"
    status["metrics"] = [{"name": name, "value": value} for name, value in metrics.items()]
    return json.dumps({"trainerStatus": status}).encode()


def _remaining_seconds(step: int, total: int, at: float, first: _Report | None) -> int | None:
    """Return the seconds that are left at the pace since the first report, before which the program has warmed up."""
    if first is None or first.step is None or step <= first.step:
        return 0 if step >= total else None
    return max(0, round((total - step) * (at - first.at) / (step - first.step)))


def _post(body: bytes) -> None:
    """Send the report. Neither proxies nor redirects are followed: they would get the token."""
    import ssl  # noqa: PLC0415 - as above
    from http.client import HTTPConnection, HTTPSConnection  # noqa: PLC0415 - as above
    from urllib.parse import urlsplit  # noqa: PLC0415 - as above

    url = urlsplit(os.environ[URL_VARIABLE])
    host = url.hostname or ""
    if url.scheme == "https":
        trust = ssl.create_default_context(cafile=os.environ.get(CA_VARIABLE) or None)
        connection: HTTPConnection = HTTPSConnection(host, url.port, timeout=TIMEOUT, context=trust)
    else:
        connection = HTTPConnection(host, url.port, timeout=TIMEOUT)
    headers = {"Content-Type": "application/json"}
    token_file = os.environ.get(TOKEN_VARIABLE)
    if token_file:
        # Read anew each time, because the kubelet renews it.
        with open(token_file) as file:  # noqa: PTH123 - pathlib would be one more import
            headers["Authorization"] = f"Bearer {file.read().strip()}"
    path = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        if answer.status >= _SUCCESS:
            text = answer.read(300).decode(errors="replace")
            raise OSError(f"{host} answered {answer.status} {answer.reason}: {text}")
    finally:
        connection.close()


_reporter = Reporter()
atexit.register(_reporter.flush)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reporter.reset)
