"""Reads and merges the logs of a job's pods from a cluster, and explains which logs are missing."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tarragon.cli.jobview.jobs import ClusterJob, NoSuchJob, pods_of, progress_input
from tarragon.cli.jobview.log_book import ContainerRun
from tarragon.cli.jobview.log_listener import container_runs
from tarragon.cli.jobview.progress import FAILED, STOPPED, SUCCEEDED, Progress, newest_pods, progress_of
from tarragon.cli.output.log_lines import LineSplitter, split_stamp, terminal_text
from tarragon.cli.output.words import joined
from tarragon.cli.targets.stored_logs import LogLine
from tarragon.client.errors import ApiError, Forbidden
from tarragon.client.port import Client, LogOptions, Selector
from tarragon.job.log_rendering import render_line
from tarragon.job.model import CleanPodPolicy, Replica
from tarragon.kube.core import PODS, Pod
from tarragon.plan.nodes.replica_requests import pod_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedLogs:
    """`streams` has the lines of each container, in order. `notes` say for the user which logs are missing."""

    streams: Sequence[Sequence[LogLine]]
    notes: Sequence[str]


async def fetch_pod_logs(
    cluster: Client, job: ClusterJob, wants: Callable[[Replica], bool], options: LogOptions
) -> FetchedLogs:
    """Reads the logs of all wanted replicas concurrently. Raises NoSuchJob if the job has no wanted replica."""
    listing = await cluster.list(PODS, Selector(namespace=job.key.namespace, label_selector=job.selector))
    pods = newest_pods(pods_of(job, listing.items))
    progress = progress_of(progress_input(job, pods))
    members = [member.replica for member in progress.replicas]
    selected = [replica for replica in members if wants(replica)]
    if members and not selected:
        raise NoSuchJob(
            "no replica matches --replica and --type", why=f"the replicas are {joined(list(map(str, members)))}"
        )
    runs = [
        (pods[replica], instance)
        for replica in selected
        if replica in pods
        for instance in container_runs(replica, pods[replica], job.framework.main_container, options.container)
        if not options.previous or instance.number
    ]
    if options.container and selected and not runs:
        _require_container(options.container, job, pods.values())
    answers = await asyncio.gather(*(_log(cluster, pod, instance, options) for pod, instance in runs))
    streams = [answer for answer in answers if not isinstance(answer, ApiError)]
    refused = [
        unreadable_text(instance.replica, answer)
        for (_, instance), answer in zip(runs, answers, strict=True)
        if isinstance(answer, ApiError)
    ]
    found_replicas = {instance.replica for _, instance in runs}
    missing = [replica for replica in selected if replica not in found_replicas]
    notes = ["no replica was restarted in its pod: --previous has nothing to show"]
    if not options.previous:
        notes = list(_missing(job, progress, missing))
    return FetchedLogs(streams=streams, notes=[*(notes if missing else ()), *refused])


def container_names(job: ClusterJob) -> Sequence[str]:
    """Returns the names of all containers in the job's pod templates."""
    groups = job.job.replica_specs if job.job is not None else ()
    specs = [pod_spec(group.template) for group in groups]
    return sorted({each.name for spec in specs for each in (*spec.containers, *spec.init_containers)})


def _require_container(name: str, job: ClusterJob, pods: Iterable[Pod]) -> None:
    in_pods = {each.name for pod in pods for each in (*pod.spec.containers, *pod.spec.init_containers)}
    names = sorted(in_pods | set(container_names(job)))
    if name not in names:
        raise NoSuchJob(f"no replica has a container {name}", why=f"the containers are {joined(names)}")


def merged_pod_lines(found: FetchedLogs, tail: int | None, fits: Callable[[LogLine], bool]) -> Iterator[LogLine]:
    """Yields the lines that fit, in order of time: at most `tail` of each replica, its init containers included."""
    by_replica: dict[Replica, list[LogLine]] = {}
    for stream in found.streams:
        for said in stream:
            by_replica.setdefault(said.replica, []).extend([said] if fits(said) else [])
    lists = [said if tail is None else list(deque(said, maxlen=tail)) for said in by_replica.values()]
    return heapq.merge(*lists, key=lambda said: said.stamp)


def unreadable_text(replica: Replica, error: ApiError) -> str:
    """Explains in a line why a log can't be read."""
    if isinstance(error, Forbidden):
        return f"the log of {replica} can't be read: you may not get pods/log in this namespace"
    return f"the log of {replica} can't be read: {error.summary}"


async def _log(cluster: Client, pod: Pod, instance: ContainerRun, options: LogOptions) -> Sequence[LogLine] | ApiError:
    request = replace(options, container=instance.container, timestamps=True)
    lines, said = LineSplitter(), []
    try:
        async with aclosing(cluster.pod_log(pod.metadata.key, request)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                said += lines.feed(chunk)
    except ApiError as error:
        return error
    return [part for line in (*said, *lines.finish()) for part in _said(instance.replica, line)]


def _said(replica: Replica, line: str) -> list[LogLine]:
    stamp, text = split_stamp(line)
    moment = line[: len(line) - len(text)].rstrip()
    return [LogLine(stamp, replica, moment, part) for part in render_line(text).split("\n")]


def _missing(job: ClusterJob, progress: Progress, missing: Sequence[Replica]) -> Iterator[str]:
    """Explains why replicas have no logs, from the job's status."""
    names = joined([str(replica) for replica in missing])
    states = {member.replica: member.state for member in progress.replicas}
    ended = [replica for replica in missing if states[replica] in {SUCCEEDED, FAILED, STOPPED}]
    if progress.wait is not None:
        yield f"{job.name} is {job.state}: {progress.wait.message}; no replica has started"
    elif not ended:
        yield f"no log of {names} yet: {job.name} is {job.state}"
    else:
        policy = job.job.run_policy.clean_pod_policy if job.job is not None else CleanPodPolicy.NONE
        gone = (
            "its pod is deleted, and its log with it"
            if len(missing) == 1
            else "their pods are deleted, and their logs with them"
        )
        yield f"no log of {names}: {gone}; cleanPodPolicy is {policy.value}"
        if policy is not CleanPodPolicy.NONE:
            yield "set cleanPodPolicy: None in the job's runPolicy to keep the pods of the next run"
    failure = job.status.first_failure
    if failure is not None and failure.replica in missing and failure.message:
        yield f"the last lines of {failure.replica}, from the job's status:"
        yield from (f"  {terminal_text(line, colors=False)}" for line in failure.message.split("\n"))
