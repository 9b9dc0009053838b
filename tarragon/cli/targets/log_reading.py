"""`tarragon logs`: reads the logs of a job's replicas from a cluster or from this machine's disk."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tarragon.base.clock import Clock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import (
    AmbiguousName,
    ClusterJob,
    JobName,
    NoSuchJob,
    find_job,
    name_with_kind,
    parse_job_name,
)
from tarragon.cli.jobview.log_listener import LogStreamer
from tarragon.cli.jobview.rows import current_size, reason
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.options.notes import print_note
from tarragon.cli.options.settings import GlobalOptions
from tarragon.cli.output.terminal import Sink, sink_of
from tarragon.cli.output.words import count, joined
from tarragon.cli.targets.log_filter import LogPrinter, LogQuery
from tarragon.cli.targets.next_commands import command_line
from tarragon.cli.targets.pod_logs import container_names, fetch_pod_logs, merged_pod_lines, unreadable_text
from tarragon.cli.targets.resolving import resolve_target
from tarragon.cli.targets.stored_logs import (
    LogLine,
    StoredJob,
    StoredRun,
    jobs_of_name,
    merged_stored_lines,
    runs_of_job,
)
from tarragon.client.port import Client
from tarragon.job.model import Replica
from tarragon.job.phase import Phase
from tarragon.kube.meta import Key

_GONE = "{} keeps no logs of deleted jobs: a log is deleted with its pod"


async def print_logs(settings: GlobalOptions, name: str, wanted: LogQuery, following: Clock | None) -> None:
    """Prints the logs of a job. With a clock, follows them until the job is over."""
    target = resolve_target(settings)
    if wanted.job_number is not None and target.nodes_folder is None:
        raise TarragonError(
            f"{target.name} keeps no logs of earlier jobs",
            why="a log is deleted with its pod",
            remedy="omit --run: the logs of the newest job exist as long as its pods do",
        )
    async with target.reading() as reader:
        try:
            job = await find_job(reader, name, target.namespace)
        except NoSuchJob as error:
            if target.nodes_folder is None:
                raise NoSuchJob(error.summary, why=_GONE.format(target.name), remedy=error.remedy) from error
            LogPrinter(wanted, settings).print_stored(_kept_logs(target, name, wanted, error.remedy))
            return
    if wanted.job_number is not None:
        stored = jobs_of_name(target.nodes_folder, _name_of(job), job.key.namespace)
        runs = _runs_of_number(stored, job.key, wanted.job_number)
        wanted = wanted.among({run.replica for run in runs})
        LogPrinter(wanted, settings).print_stored(_matching_lines(runs, wanted))
        return
    runs = runs_of_job(target.nodes_folder, job)
    wanted = wanted.among(_replicas_of(job, runs))
    printer = LogPrinter(wanted, settings)
    if following is not None and not job.status.phase.is_final:
        await _follow(target, job, following, wanted, printer)
    elif target.nodes_folder is None:
        async with target.watching() as cluster:
            await _print_cluster_logs(target, cluster, job, wanted, printer)
    else:
        _note_stored(target, job, runs)
        printer.print_stored(_matching_lines(runs, wanted))


def _note_stored(target: ClusterTarget, job: ClusterJob, runs: Sequence[StoredRun]) -> None:
    """Notes that the job has no logs, or that there are those of others of its name."""
    if not runs:
        print_note(_without_logs(target, job))
    if not runs or _is_read_by_somebody():
        stored = jobs_of_name(target.nodes_folder, _name_of(job), job.key.namespace)
        _note_earlier(job.key.name, len(stored) - bool(runs))


def _replicas_of(job: ClusterJob, runs: Sequence[StoredRun]) -> Collection[Replica]:
    """Returns the replicas of the job, also those that it has no longer since it shrank."""
    sizes = (job.requested, current_size(job))
    wanted = {Replica(kind, index) for size in sizes for kind, number in size.items() for index in range(number)}
    return wanted | {run.replica for run in runs}


def _without_logs(target: ClusterTarget, job: ClusterJob) -> str:
    """Says why a job has no logs: usually it waits, and its replicas have not started."""
    yet = "" if job.status.phase.is_final else " yet"
    return f"{job.name} has no logs{yet}: it is {_state_text(job)}\n{_more(target, job)}"


def _state_text(job: ClusterJob) -> str:
    """`Waiting: BehindOthers: a job ahead of it in the queue waits for resources`."""
    return ": ".join(filter(None, (job.state, reason(job))))


def _more(target: ClusterTarget, job: ClusterJob) -> str:
    return f"  more: {command_line(target.command_prefix, job.command_key, 'why')}"


async def _print_cluster_logs(
    target: ClusterTarget, cluster: Client, job: ClusterJob, wanted: LogQuery, printer: LogPrinter
) -> None:
    """Prints what the pods of a cluster have logged until now."""
    options = wanted.log_options(SystemClock().now())
    if wanted.grep is not None:  # the last matching lines may be further up
        options = replace(options, tail_lines=None)
    found = await fetch_pod_logs(cluster, job, wanted.selects, options)
    for text in found.notes:
        print_note(text)
    if found.notes and not found.streams and not job.status.phase.is_final:
        print_note(_more(target, job))
    printer.print_stored(merged_pod_lines(found, wanted.tail, wanted.matches))


def _name_of(job: ClusterJob) -> JobName:
    return JobName((job.framework,), job.key.name)


def _kept_logs(target: ClusterTarget, name: str, wanted: LogQuery, remedy: str) -> Iterator[LogLine]:
    """Returns the kept logs of a deleted job. Raises NoSuchJob with that remedy if there are none, or AmbiguousName."""
    parsed = parse_job_name(name)
    jobs = jobs_of_name(target.nodes_folder, parsed, target.namespace)
    if not jobs:
        raise NoSuchJob(
            f'job "{name}" not found in namespace {target.namespace}, and no logs of it',
            remedy=remedy,
        )
    names = sorted({name_with_kind(job.framework, parsed.name) for job in jobs})
    if len(names) > 1 and not parsed.names_kind:
        raise AmbiguousName(f"there are logs of deleted jobs of {len(names)} kinds", names)
    print_note(f"{name} is deleted; showing its kept logs.")
    if wanted.job_number is None and _is_read_by_somebody():
        _note_earlier(parsed.name, len(jobs) - 1)
    number = -1 if wanted.job_number is None else wanted.job_number
    runs = _runs_of_number(jobs, Key(target.namespace, parsed.name), number)
    return _matching_lines(runs, wanted.among({run.replica for run in runs}))


def _runs_of_number(jobs: Sequence[StoredJob], key: Key, number: int) -> Sequence[StoredRun]:
    """Returns the runs of the job with that number. Raises NoSuchJob if its logs are not kept."""
    if number == 0 or abs(number) > len(jobs):
        kept = f"{count(len(jobs), 'run')} of {key.name} {'is' if len(jobs) == 1 else 'are'} kept"
        raise NoSuchJob(f"run {number} of {key.name} not found", why=kept, remedy="1 is the oldest, -1 the newest")
    return jobs[number - 1 if number > 0 else number].runs


def _is_read_by_somebody() -> bool:
    """Whether stderr is a terminal: in the log of a script, a note before each log says nothing new."""
    return sink_of(sys.stderr) is Sink.TERMINAL


def _note_earlier(name: str, earlier: int) -> None:
    if earlier > 0:
        verb = "is" if earlier == 1 else "are"
        print_note(f"{count(earlier, 'earlier run')} of {name} {verb} kept: `--run 1` shows the oldest.")


async def _follow(target: ClusterTarget, job: ClusterJob, clock: Clock, wanted: LogQuery, printer: LogPrinter) -> None:
    def note(text: str) -> None:
        print_note(text)

    listener = LogStreamer(job.framework.main_container, clock, printer.print_lines, wanted.log_options(clock.now()))
    listener.select(wanted.selects)
    if wanted.container and wanted.container not in container_names(job):
        names = joined(container_names(job))
        note(f"No replica of {job.name} has a container {wanted.container}; the containers are {names}.")
    listener.on_unreadable(lambda replica, error: note(unreadable_text(replica, error)))
    if job.status.phase is Phase.SUSPENDED:
        resume = command_line(target.command_prefix, job.command_key, "resume")
        note(f"{job.name} is Suspended: its replicas log again when it is resumed\n  resume it: {resume}")
    elif _waits(target, job):
        note(f"{job.name} is {_state_text(job)}; logs appear when its replicas start.\n{_more(target, job)}")
    await target.follow(JobFollower(job, clock, lambda _: None, listener), clock, note)


def _waits(target: ClusterTarget, job: ClusterJob) -> bool:
    """Whether there may be no logs for a while. On this machine a job that was just submitted starts in a moment."""
    if not target.is_local:
        return job.status.phase is not Phase.RUNNING
    return job.is_processed and bool(reason(job)) and not job.status.running_replicas


def _matching_lines(runs: Sequence[StoredRun], wanted: LogQuery) -> Iterator[LogLine]:
    of_replicas = [run for run in runs if wanted.selects(run.replica)]
    if runs and not of_replicas:
        names = ", ".join(sorted({str(run.replica) for run in runs}))
        raise NoSuchJob("no replica matches --replica and --type", why=f"there are logs of {names}")
    of_container = [run for run in of_replicas if wanted.container in {"", run.container}]
    if of_replicas and not of_container:
        names = ", ".join(sorted({run.container for run in of_replicas}))
        raise NoSuchJob(f"no replica has a container {wanted.container}", why=f"there are logs of {names}")
    if not wanted.previous:
        return merged_stored_lines(of_container, wanted.tail, wanted.since, wanted.matches)
    before = _before_last(of_container)
    if not before:
        print_note("no replica was restarted: --previous has nothing to show")
    return merged_stored_lines(before, wanted.tail, wanted.since, wanted.matches)


def _before_last(runs: Sequence[StoredRun]) -> Sequence[StoredRun]:
    """Returns the second newest run of each container. `runs` are in order of time."""
    by_container: dict[tuple[Replica, str], list[StoredRun]] = {}
    for run in runs:
        by_container.setdefault((run.replica, run.container), []).append(run)
    return [of_container[-2] for of_container in by_container.values() if len(of_container) > 1]
