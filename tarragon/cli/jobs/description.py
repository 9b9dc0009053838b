"""Renders the details of one job for `tarragon describe`."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import click

from tarragon.base.clock import SystemClock
from tarragon.cli.jobview import schema
from tarragon.cli.jobview.events import event_time, events_of_job, sorted_events
from tarragon.cli.jobview.gpus import gpus_of_pod
from tarragon.cli.jobview.jobs import ClusterJob, pods_of, progress_input
from tarragon.cli.jobview.progress import INTERRUPTED, Progress, newest_pods, progress_of, replica_order
from tarragon.cli.jobview.restarts import restart_lines
from tarragon.cli.jobview.rows import reason, replicas, training
from tarragon.cli.jobview.target import ClusterReader, ClusterTarget
from tarragon.cli.manifest.replica_environments import install_command_for_image
from tarragon.cli.options.formats import FORMATTERS, print_lines
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.prose import width_of
from tarragon.cli.output.style import STATES, Paint, painter, without_colors
from tarragon.cli.output.words import age, duration_text, joined
from tarragon.cli.output.wrapping import UNBOUNDED, wrap_prose, wrapped_table
from tarragon.cli.report.tensorboard import tensorboard_problems
from tarragon.cli.targets.local_places import data_folders, service_addresses, tensorboard_address
from tarragon.cli.targets.next_commands import command_line
from tarragon.cli.targets.resolving import resolve_target
from tarragon.cli.targets.stored_logs import find_existing_job, pods_of_job
from tarragon.client.errors import ApiError
from tarragon.client.port import Selector
from tarragon.job.model import CleanPodPolicy, Replica
from tarragon.kube.codec import format_time
from tarragon.kube.core import EVENTS, NODES, PODS, Pod
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.scheduling.gpu_shares import share_of_pod
from tarragon.kube.scheduling.hami import node_gpu_memory

MAX_ROWS = 40
"""The most rows shown in each section; `-o json` has all of them."""
_INDENT = "  "


async def describe(settings: GlobalOptions, name: str, form: str | None) -> None:
    target = resolve_target(settings)
    async with target.reading() as reader:
        job = await find_existing_job(target, reader, name)
        listing = await reader.list(PODS, Selector(namespace=job.key.namespace, label_selector=job.selector))
        pods = newest_pods(pods_of(job, listing.items))
        events = await _events(reader, target, job, listing.items)
        gpus = await _gpus(reader, pods)
    now = SystemClock().now()
    # Without a running cluster no pod runs, whatever its stored status says.
    gone = frozenset(pod.metadata.uid for pod in pods.values()) if job.state == INTERRUPTED else frozenset()
    progress = progress_of(progress_input(job, pods, gone))
    paint = painter(colors=settings.terminal().colors_out)
    width = UNBOUNDED if form is not None else width_of(sys.stdout)
    room = width - len(_INDENT)
    parts = (
        _head(job, progress, now, paint, width),
        _titled("Warnings", [str(warning) for warning in (*job.warnings, *job.likely_mistakes)]),
        _titled("Provenance", _provenance(job)),
        _titled("Conditions", _conditions(job, now, room)),
        _titled("Restarts", [*restart_lines(job.status, now)]),
        _titled("Replicas", _replica_table(target, job, progress, gpus, room)),
        [] if job.is_offline else _still_running(target, job, pods),
        _titled("TensorBoard", _tensorboard(target, job, listing.items)),
        _titled("Folders", _folders([*data_folders(target.nodes_folder, job, pods)], room)),
        _titled("Events", _event_table(events, now, room)),
    )
    if form is not None:
        plainly = [without_colors(line) for part in parts for line in part]
        click.echo(FORMATTERS[form](schema.job_document(job, now, plainly)))
        return
    for part in parts:
        print_lines(part)


def _head(job: ClusterJob, progress: Progress, now: dt.datetime, paint: Paint, width: int) -> Iterator[str]:
    state = paint(progress.state, STATES.get(progress.state, ""))
    generation = job.dialect.name if job.dialect is not None else "unknown generation"
    version = job.object.api_version
    facts = [
        ("Name", job.key.name),
        ("Namespace", job.key.namespace),
        ("Kind", f"{job.framework.kind} {version}" + (f" ({generation})" if generation != version else "")),
        ("State", f"{state}, {duration_text(progress.elapsed(now))} after creation"),
        ("Reason", reason(job)),
        ("Progress", _training(job, now)),
        ("Replicas", replicas(job)),
        ("Created", format_time(job.created) if job.created else ""),
        ("Started", format_time(progress.started) if progress.started else ""),
        ("Ended", format_time(progress.completed) if progress.completed else ""),
    ]
    for label, value in facts:
        if value:
            yield from wrap_prose(f"{label + ':':<11} {value}", width, " " * 12)


def _training(job: ClusterJob, now: dt.datetime) -> str:
    """How far the training is, and how old that is."""
    text, found = training(job, now), job.status.progress
    return f"{text}, as of {age(found.updated_at, now)} ago" if text and found is not None else ""


def _titled(title: str, lines: Sequence[str]) -> Iterator[str]:
    """Yield the section, in which a line may have several rows."""
    if lines:
        yield ""
        yield f"{title}:"
        yield from (f"{_INDENT}{row}" for line in lines[: MAX_ROWS + 1] for row in line.split("\n"))
        if len(lines) > MAX_ROWS + 1:
            yield f"  and {len(lines) - MAX_ROWS - 1} more"


def _conditions(job: ClusterJob, now: dt.datetime, width: int) -> Sequence[str]:
    rows = [
        (
            condition.type,
            str(condition.is_true),
            condition.reason,
            age(condition.last_transition_time, now),
            condition.message,
        )
        for condition in job.status.conditions
    ]
    return wrapped_table(("TYPE", "STATUS", "REASON", "AGE", "MESSAGE"), rows, width) if rows else ()


def _tensorboard(target: ClusterTarget, job: ClusterJob, pods: Sequence[Pod]) -> Sequence[str]:
    """List TensorBoard's address and, since an address may not answer, why it does not."""
    address = tensorboard_address(target.nodes_folder, job)
    if job.state == INTERRUPTED or job.job is None or job.job.tensorboard is None:
        return [*filter(None, [address])]
    install = install_command_for_image(job, job.job.tensorboard.image, is_local=target.is_local)
    return [*filter(None, [address]), *tensorboard_problems(job, pods, install)]


def _provenance(job: ClusterJob) -> Sequence[str]:
    """List what the job was made from: its manifest, the operator, and the images that nodes have pulled."""
    provenance = job.status.provenance
    if provenance is None:
        return ()
    images = [("image", f"{image} {digests}") for image, digests in provenance.image_digests.items()]
    facts = (("manifest", provenance.manifest_digest), ("operator", provenance.operator_version), *images)
    return [f"{what:<9} {value}" for what, value in facts]


async def _gpus(reader: ClusterReader, pods: Mapping[Replica, Pod]) -> Mapping[str, str]:
    """Return what each replica has of GPUs, if one of them shares a GPU."""
    sharing = [pod for pod in pods.values() if share_of_pod(pod) is not None]
    memory = {name: await _gpu_memory(reader, name) for name in sorted({pod.spec.node_name for pod in sharing})}
    return (
        {str(replica): gpus_of_pod(pod, memory.get(pod.spec.node_name, 0)) for replica, pod in pods.items()}
        if sharing
        else {}
    )


async def _gpu_memory(reader: ClusterReader, node: str) -> int:
    """Return the memory of each GPU of a node; 0 if it is unknown, also to this user."""
    with suppress(ApiError):
        return node_gpu_memory(await reader.get(NODES, Key("", node))) if node else 0
    return 0


def _replica_table(
    target: ClusterTarget, job: ClusterJob, progress: Progress, gpus: Mapping[str, str], width: int
) -> Sequence[str]:
    """Build the table of replicas, with addresses if they have any: on the local cluster also that on this machine."""
    addresses = [service_addresses(target.nodes_folder, job, member.replica) for member in progress.replicas]
    has_addresses, has_local = any(address for address, _ in addresses), any(local for _, local in addresses)
    columns = (["ADDRESS", "HERE"] if has_local else ["ADDRESS"]) if has_addresses else []
    header = ("REPLICA", "STATE", "EXIT", "RESTARTS", "NODE", *(["GPU"] if gpus else []), *columns)
    rows = []
    for member, (address, local) in zip(progress.replicas, addresses, strict=True):
        places = [address or "-", local or "-"][: len(columns)]
        parts = [gpus.get(member.name) or "-"] if gpus else []
        rows.append(
            (member.name, member.state, member.exit_cell, str(member.restarts), member.node or "-", *parts, *places)
        )
    return wrapped_table(header, rows, width) if rows else ()


def _folders(found: Sequence[tuple[str, Path]], width: int) -> Sequence[str]:
    """List the folders; each below what it has, where both do not fit in a row."""
    lines = [f"{what:<22} {path}" for what, path in found]
    return lines if max(map(len, lines), default=0) <= width else [f"{what}\n{_INDENT}{path}" for what, path in found]


def _still_running(target: ClusterTarget, job: ClusterJob, pods: Mapping[Replica, Pod]) -> Iterator[str]:
    """Warn about pods that still run after the job has ended, because its cleanPodPolicy is None."""
    policy = None if job.job is None else job.job.run_policy.clean_pod_policy
    if not job.status.phase.is_final or policy is not CleanPodPolicy.NONE:
        return
    running = [replica for replica in sorted(pods, key=replica_order(job.requested)) if not pods[replica].is_finished]
    names = [str(replica) for replica in running if not pods[replica].metadata.is_being_deleted]
    if names:
        yield f"  still running: {joined(names)}; with cleanPodPolicy None they hold memory until the job is deleted:"
        yield f"    {command_line(target.command_prefix, job.command_key, 'delete')}"


async def _events(
    reader: ClusterReader, target: ClusterTarget, job: ClusterJob, pods: Sequence[Pod]
) -> Sequence[JsonObject]:
    """Return the events of the job and its pods, oldest first."""
    kept = {pod.facts.uid for pod in pods_of_job(target.nodes_folder, job)}
    listing = await reader.list(EVENTS.with_model(dict), Selector(namespace=job.key.namespace))
    return sorted_events(events_of_job(listing.items, job, pods, kept))


def _event_table(events: Sequence[JsonObject], now: dt.datetime, width: int) -> Sequence[str]:
    rows = []
    for event in events[-MAX_ROWS:]:
        times = int(event.get("count") or 1)
        about: Json = event.get("involvedObject") or {}
        rows.append(
            (
                age(event_time(event), now) + (f" ({times} times)" if times > 1 else ""),
                str(event.get("type", "")),
                str(event.get("reason", "")),
                f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
                str(event.get("message", "")).replace("\n", " "),
            )
        )
    return wrapped_table(("AGE", "TYPE", "REASON", "ABOUT", "MESSAGE"), rows, width) if rows else ()
