"""Health checks and metrics of the API server's process, under the names of a kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiohttp import web

from tarragon.client.errors import ApiError
from tarragon.localcluster.api import errors
from tarragon.localcluster.apiserver.http import responses

PLACES = frozenset({"healthz", "livez", "readyz"})
PARTS = ("ping", "log", "etcd")
"""The names of a kube-apiserver's checks. All are one process here: if it answers, every check passes."""

_METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def health_check(request: web.BaseRequest, parts: Sequence[str]) -> web.StreamResponse:
    """Answer /healthz, /livez or /readyz. Raises NotFound for an unknown check."""
    place, *part = parts
    if part:
        if len(part) > 1 or part[0] not in PARTS:
            raise _no_such_part(parts)
        return responses.text("ok")
    left_out = set(request.query.getall("exclude", []))
    if "verbose" in request.query:
        lines = [f"[+]{name} {'excluded: ok' if name in left_out else 'ok'}\n" for name in PARTS]
        return responses.text("".join([*lines, f"{place} check passed\n"]))
    return responses.text("ok")


def _no_such_part(parts: Sequence[str]) -> ApiError:
    return errors.failure(404, "NotFound", f"the server has no check /{'/'.join(parts)}; it has {', '.join(PARTS)}")


def metrics(objects: Mapping[str, int], started: float, streams: int) -> web.Response:
    """Answer /metrics. `objects` are counts by kind, `started` is in seconds of the epoch, `streams` are open ones."""
    body = "".join(f"{line}\n" for line in _metric_lines(objects, started, streams))
    return web.Response(
        body=body.encode(), headers={"Content-Type": _METRICS_TYPE, "Cache-Control": "no-cache, private"}
    )


def _metric_lines(objects: Mapping[str, int], started: float, streams: int) -> Iterator[str]:
    yield "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind."
    yield "# TYPE apiserver_storage_objects gauge"
    for kind, count in sorted(objects.items()):
        yield f'apiserver_storage_objects{{resource="{kind}"}} {count}'
    yield "# HELP apiserver_longrunning_requests Open watches, logs and exec sessions."
    yield "# TYPE apiserver_longrunning_requests gauge"
    yield f"apiserver_longrunning_requests {streams}"
    yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {started}"
