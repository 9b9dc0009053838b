"""Lists the events of a job for `top`, fetched on demand."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from tarragon.cli.jobview.events import event_time, events_of_job, sorted_events
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.output.words import age, table
from tarragon.client.port import Client, Selector
from tarragon.kube.core import EVENTS, Pod
from tarragon.kube.meta import Json


async def event_lines(cluster: Client, job: ClusterJob, pods: Sequence[Pod], now: dt.datetime) -> Sequence[str]:
    """Return the events of the job and its pods as a table, oldest first. `pods` are all pods of the namespace."""
    listing = await cluster.list(EVENTS.with_model(dict), Selector(namespace=job.key.namespace))
    rows = []
    for event in sorted_events(events_of_job(listing.items, job, pods)):
        about: Json = event.get("involvedObject") or {}
        times = int(event.get("count") or 1)
        rows.append(
            (
                age(event_time(event), now) + (f" ({times} times)" if times > 1 else ""),
                str(event.get("type", "")),
                str(event.get("reason", "")),
                str(about.get("name", "")),
                str(event.get("message", "")).replace("\n", " "),
            )
        )
    return table(("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), rows) if rows else ["No events."]
