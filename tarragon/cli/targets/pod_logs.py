"""The logs of a job's pods as a cluster has them now: each pod's own, merged; what is not there any more is said."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from tarragon.cli.jobview.jobs import Known, NoSuchJob, pods_of, sighting
from tarragon.cli.jobview.log_book import Instance
from tarragon.cli.jobview.log_listener import instances
from tarragon.cli.jobview.progress import FAILED, STOPPED, SUCCEEDED, Progress, newest, read
from tarragon.cli.output.log_lines import Lines, shown, stamped
from tarragon.cli.output.words import listed
from tarragon.cli.targets.stored_logs import Said
from tarragon.client.errors import ApiError, Forbidden
from tarragon.client.port import Cluster, LogOptions, Selection
from tarragon.job.model import CleanPodPolicy, Replica
from tarragon.job.spoken import spoken
from tarragon.kube.core import PODS, Pod
from tarragon.plan.nodes.capacity import pod_spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`streams`: of each container its lines in order. `notes`: what could not be had, for the user."""

    streams: Sequence[Sequence[Said]]
    notes: Sequence[str]


async def pod_logs(cluster: Cluster, job: Known, wants: Callable[[Replica], bool], options: LogOptions) -> Found:
    """Of all wanted replicas at once. Raises NoSuchJob when none of the job's replicas is wanted."""
    listing = await cluster.list(PODS, Selection(namespace=job.key.namespace, labels=job.selector))
    pods = newest(pods_of(job, listing.items))
    progress = read(sighting(job, pods))
    members = [member.replica for member in progress.members]
    wanted = [replica for replica in members if wants(replica)]
    if members and not wanted:
        raise NoSuchJob(
            "no replica of the job fits --replica and --type", why=f"there are {listed(list(map(str, members)))}"
        )
    begun = [
        (pods[replica], instance)
        for replica in wanted
        if replica in pods
        for instance in instances(replica, pods[replica], job.framework.main_container, options.container)
        if not options.previous or instance.number
    ]
    if options.container and wanted and not begun:
        _require_container(options.container, job, pods.values())
    answers = await asyncio.gather(*(_log(cluster, pod, instance, options) for pod, instance in begun))
    streams = [answer for answer in answers if not isinstance(answer, ApiError)]
    refused = [
        unread(instance.replica, answer)
        for (_, instance), answer in zip(begun, answers, strict=True)
        if isinstance(answer, ApiError)
    ]
    heard = {instance.replica for _, instance in begun}
    missing = [replica for replica in wanted if replica not in heard]
    notes = ["no replica has been restarted in its pod: there is no run before its last one to read"]
    if not options.previous:
        notes = list(_missing(job, progress, missing))
    return Found(streams=streams, notes=[*(notes if missing else ()), *refused])


def containers(job: Known) -> Sequence[str]:
    """The names that the job's templates give to containers, of all its replicas."""
    groups = job.job.groups if job.job is not None else ()
    specs = [pod_spec(group.template) for group in groups]
    return sorted({each.name for spec in specs for each in (*spec.containers, *spec.init_containers)})


def _require_container(name: str, job: Known, pods: Iterable[Pod]) -> None:
    there = {each.name for pod in pods for each in (*pod.spec.containers, *pod.spec.init_containers)}
    known = sorted(there | set(containers(job)))
    if name not in known:
        raise NoSuchJob(f"no replica has a container {name}", why=f"there are {listed(known)}")


def lines_of(found: Found, tail: int | None, fits: Callable[[Said], bool]) -> Iterator[Said]:
    """Those that fit, in order of time; `tail` at most of each replica, whose init containers have as many each."""
    by_replica: dict[Replica, list[Said]] = {}
    for stream in found.streams:
        for said in stream:
            by_replica.setdefault(said.replica, []).extend([said] if fits(said) else [])
    lists = [said if tail is None else list(deque(said, maxlen=tail)) for said in by_replica.values()]
    return heapq.merge(*lists, key=lambda said: said.stamp)


def unread(replica: Replica, error: ApiError) -> str:
    """Why a log can't be had, in a line."""
    if isinstance(error, Forbidden):
        return f"the log of {replica} can't be read: you may not get pods/log here"
    return f"the log of {replica} can't be read: {error.what}"


async def _log(cluster: Cluster, pod: Pod, instance: Instance, options: LogOptions) -> Sequence[Said] | ApiError:
    asked = replace(options, container=instance.container, timestamps=True)
    whole, said = Lines(), []
    try:
        async with aclosing(cluster.pod_log(pod.metadata.key, asked)) as chunks:  # type: ignore[type-var]
            async for chunk in chunks:
                said += whole.feed(chunk)
    except ApiError as error:
        return error
    return [part for line in (*said, *whole.finish()) for part in _said(instance.replica, line)]


def _said(replica: Replica, line: str) -> list[Said]:
    stamp, text = stamped(line)
    moment = line[: len(line) - len(text)].rstrip()
    return [Said(stamp, replica, moment, part) for part in spoken(text).split("\n")]


def _missing(job: Known, progress: Progress, missing: Sequence[Replica]) -> Iterator[str]:
    """Why there is no log of them, as far as the job's status knows."""
    names = listed([str(replica) for replica in missing])
    states = {member.replica: member.state for member in progress.members}
    ended = [replica for replica in missing if states[replica] in {SUCCEEDED, FAILED, STOPPED}]
    if progress.wait is not None:
        yield f"{job.name} is {job.state}: {progress.wait.message}; no replica has begun"
    elif not ended:
        yield f"no log of {names} yet: {job.name} is {job.state}"
    else:
        policy = job.job.run_policy.clean_pods if job.job is not None else CleanPodPolicy.NONE
        gone = (
            "its pod is gone, and its log with it"
            if len(missing) == 1
            else "their pods are gone, and their logs with them"
        )
        yield f"no log of {names}: {gone}; cleanPodPolicy is {policy.value}"
        if policy is not CleanPodPolicy.NONE:
            yield "cleanPodPolicy: None in the job's runPolicy keeps the pods of the next one"
    failure = job.status.first_failure
    if failure is not None and failure.replica in missing and failure.message:
        yield f"the last words of {failure.replica}, as the job's status has them:"
        yield from (f"  {shown(line, colors=False)}" for line in failure.message.split("\n"))
