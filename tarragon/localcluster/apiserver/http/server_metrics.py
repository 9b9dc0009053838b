"""The server's own metrics, in Prometheus' words and under the names that a real server gives them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiohttp import web

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def page(objects: Mapping[str, int], started: float, streams: int) -> web.Response:
    """`objects` by kind; `started` in seconds of wall time; `streams` are watches and logs that somebody reads."""
    body = "".join(f"{line}\n" for line in _lines(objects, started, streams))
    return web.Response(body=body.encode(), headers={"Content-Type": _TYPE, "Cache-Control": "no-cache, private"})


def _lines(objects: Mapping[str, int], started: float, streams: int) -> Iterator[str]:
    yield "# HELP apiserver_storage_objects Number of stored objects at the time of last check split by kind."
    yield "# TYPE apiserver_storage_objects gauge"
    for kind, count in sorted(objects.items()):
        yield f'apiserver_storage_objects{{resource="{kind}"}} {count}'
    yield "# HELP apiserver_longrunning_requests Watches and logs that somebody reads at present."
    yield "# TYPE apiserver_longrunning_requests gauge"
    yield f"apiserver_longrunning_requests {streams}"
    yield "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds."
    yield "# TYPE process_start_time_seconds gauge"
    yield f"process_start_time_seconds {started}"
