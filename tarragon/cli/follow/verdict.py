"""The last output of `run`, and its exit code."""

from __future__ import annotations

import signal
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import click

from tarragon.cli.follow.attending import FollowEnd, FollowSession
from tarragon.cli.follow.never_fits import never_fits_message
from tarragon.cli.jobview.exit_code import NEVER_FITS, UNFINISHED, exit_code
from tarragon.cli.jobview.gpus import accelerators_of_job, count_of_gpus
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import FAILED, RUNNING, STARTING, SUCCEEDED, replica_order
from tarragon.cli.jobview.rows import NOT_PROCESSED, reason
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.replica_environments import replica_environments
from tarragon.cli.options.command_tree import handle_broken_pipe
from tarragon.cli.options.formats import print_lines
from tarragon.cli.options.notes import print_note
from tarragon.cli.output.interrupts import SIGNAL_EXIT_BASE
from tarragon.cli.output.prose import print_message, width_of
from tarragon.cli.output.style import Paint
from tarragon.cli.output.terminal import Sink, sink_of
from tarragon.cli.output.words import duration_text, joined
from tarragon.cli.output.wrapping import clipped
from tarragon.cli.report.ending import FinishedJob, failure_report, success_report
from tarragon.cli.targets.next_commands import WHEN_FAILED, WHEN_FINISHED, WHILE_RUNNING, command_line, next_commands
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Replica, SuccessPolicy
from tarragon.kube.meta import Key

INTERRUPTED_CODE = SIGNAL_EXIT_BASE + signal.SIGINT
"""The exit code if Ctrl-C has ended the job, as shells and other programs have it."""
DETACHED_CODES: Mapping[FollowEnd, int] = MappingProxyType(
    {
        FollowEnd.DETACHED: UNFINISHED,
        FollowEnd.TERMINATED: SIGNAL_EXIT_BASE + signal.SIGTERM,
        FollowEnd.HUNG_UP: SIGNAL_EXIT_BASE + signal.SIGHUP,
    }
)
"""Exit codes if a signal ended the command while the job continues."""


def report_outcome(attended: FollowSession, how: FollowEnd, limit: float | None, paint: Paint) -> int:
    """Prints how the command ended, and returns its exit code."""
    follower, where = attended.follower, attended.target
    name, key, address = follower.job.name, follower.job.key, follower.job.command_key
    match how:
        case FollowEnd.FINISHED:
            return report_result(attended, paint)
        case FollowEnd.STOPPED:
            how_well = "all its replicas ended with exit code 0; " if _ended_well(where, follower.job) else ""
            deleted = f"the job is deleted{_kept(where, follower.job)}"
            _say(f"Stopped {name}: {how_well}{deleted}.", _logs(where, follower.job), attended.table_when_stopped)
            return INTERRUPTED_CODE
        case FollowEnd.KILLED:
            killed = f"Killed {name}: the job is deleted{_kept(where, follower.job)}."
            _say(killed, _logs(where, follower.job), attended.table_when_stopped)
            return INTERRUPTED_CODE
        case FollowEnd.DETACHED | FollowEnd.TERMINATED | FollowEnd.HUNG_UP:
            stands = f"it has {follower.progress.state}" if follower.progress.is_final else "it continues"
            _say(f"Detached from {name}: {stands} in {key.namespace} on {where.name}.", _meanwhile(where, address))
            return DETACHED_CODES[how]
        case FollowEnd.TIMED_OUT:
            _say(_late(attended, limit or 0), _meanwhile(where, address))
            return UNFINISHED
        case FollowEnd.PIPE_CLOSED:
            _say(f"The reader of the logs closed the pipe; {name} continues.", _meanwhile(where, address))
            return handle_broken_pipe()
        case FollowEnd.NEVER_FITS | FollowEnd.NEVER_FITS_AND_DELETED:
            is_deleted = how is FollowEnd.NEVER_FITS_AND_DELETED
            deleted = "\n  The job is deleted: nothing waits on this machine." if is_deleted else ""
            steps = () if is_deleted else next_commands(where.command_prefix, address, WHEN_FINISHED[1:])
            _say(never_fits_message(follower.job, follower.progress) + deleted, steps)
            return NEVER_FITS


def _late(attended: FollowSession, limit: float) -> str:
    """The message for a time limit. A job that has no operator says nothing about itself: the message points to it."""
    job = attended.follower.job
    if job.is_processed:
        return f"{job.name} has not ended within {duration_text(limit)}; it continues."
    why = reason(job)
    if why == NOT_PROCESSED:
        why += f"; `{attended.target.command_prefix.program} check` looks for one"
    return f"{job.name} has not ended within {duration_text(limit)}: {why}."


def report_result(attended: FollowSession, paint: Paint) -> int:
    """Prints the result of a job that is over, on stdout, and hints on stderr; returns the exit code."""
    follower, where = attended.follower, attended.target
    name, state = follower.job.name, follower.progress.state
    if follower.is_deleted:
        _say(f"{name} was deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
        return exit_code(follower.progress, follower.job.status, is_gone=True)
    if state in {SUCCEEDED, FAILED}:
        _print((success_report if state == SUCCEEDED else failure_report)(finished_job(attended), paint))
        message = remaining_message(attended)
    else:
        message = f"{name} is suspended: none of its replicas run."
    steps = WHEN_FAILED if state == FAILED else WHEN_FINISHED
    _say(message, next_commands(where.command_prefix, follower.job.command_key, steps))
    return exit_code(follower.progress, follower.job.status, is_gone=follower.is_deleted)


def finished_job(attended: FollowSession) -> FinishedJob:
    """Collects what is known of a job that has ended."""
    job, book, where = attended.follower.job, attended.streamer.positions, attended.target
    runs = runs_of_job(where.nodes_folder, job)
    return FinishedJob(
        progress=attended.follower.progress,
        seconds=attended.seconds,
        waited=attended.waited,
        run_seconds={run.replica: run.seconds for run in runs if run.seconds is not None},
        first_failure=job.status.first_failure,
        deciding_replicas=deciding_replicas(job),
        tails=book.tails,
        line_counts=book.line_counts,
        exit_codes=job.dialect.exit_codes if job.dialect is not None else SINCE_TRAINING_OPERATOR_1_5,
        policy_of=job.restart_policy_of,
        helpful_restart_policy=job.helpful_restart_policy,
        restart_policy_field=job.restart_policy_field,
        restarts=job.status.restarts,
        likely_mistakes=job.likely_mistakes,
        environments=replica_environments(job, is_local=where.is_local),
    )


def deciding_replicas(job: ClusterJob) -> Sequence[Replica]:
    """The replicas that decide the job's result: the chief, or all of its type with that success policy."""
    if job.job is None or job.job.chief is None:
        return ()
    chief = job.job.chief
    if job.job.success_policy is SuccessPolicy.ALL_WORKERS and not job.job.has_chief:
        return [Replica(chief.type, index) for index in range(job.requested.get(chief.type, 1))]
    return [chief]


def remaining_message(attended: FollowSession) -> str:
    """Names the replicas that ran on after the job's end, and whether they still do; empty if there are none."""
    follower = attended.follower
    if attended.remaining is not None:
        order = replica_order(follower.job.requested)
        ended = [str(replica) for replica in sorted(attended.remaining.ended, key=order)]
        return f"Ended {joined(ended)}, which still ran; --keep-pods keeps such replicas." if ended else ""
    running = [member.replica for member in follower.progress.replicas if member.state in {STARTING, RUNNING}]
    end = command_line(attended.target.command_prefix, follower.job.command_key, "delete")
    return still_running_message(follower.job, running, end)


def still_running_message(job: ClusterJob, running: Sequence[Replica], end: str) -> str:
    """Says which replicas cleanPodPolicy None keeps running, and what they hold until the command `end` ends them."""
    if job.job is None or not running or job.job.run_policy.clean_pod_policy is not CleanPodPolicy.NONE:
        return ""
    verb, hold, them = ("runs", "holds", "it") if len(running) == 1 else ("run", "hold", "them")
    gpus = accelerators_of_job(job, Counter(replica.type for replica in running))
    held = f" and {hold} {count_of_gpus(gpus)}" if gpus else ""
    names = joined([str(replica) for replica in running])
    return f"{names} still {verb}{held}, because cleanPodPolicy is None; `{end}` ends {them}."


def _ended_well(where: ClusterTarget, job: ClusterJob) -> bool:
    """Whether the last run of every replica ended with exit code 0: on their own, or in answer to SIGTERM."""
    runs = [run for run in runs_of_job(where.nodes_folder, job) if run.container == job.framework.main_container]
    last = {run.replica: run.exit_code for run in sorted(runs, key=lambda run: run.started)}
    return len(last) == sum(job.requested.values()) > 0 and not any(last.values()) and None not in last.values()


def _kept(where: ClusterTarget, job: ClusterJob) -> str:
    """The part of a message about kept logs; empty if the job never started."""
    return ", its logs are kept" if runs_of_job(where.nodes_folder, job) else ""


def _logs(where: ClusterTarget, job: ClusterJob) -> Iterable[str]:
    return next_commands(where.command_prefix, job.command_key, WHEN_FINISHED[:1]) if _kept(where, job) else ()


def _meanwhile(where: ClusterTarget, address: Key) -> Iterable[str]:
    return next_commands(where.command_prefix, address, WHILE_RUNNING)


def _print(lines: Iterable[str]) -> None:
    """Prints the result on stdout, like the logs; its first line also on stderr if only that is a terminal."""
    result = list(lines)
    print_lines(result)
    if sink_of(sys.stdout) is not Sink.TERMINAL and sink_of(sys.stderr) is Sink.TERMINAL:
        click.echo(result[0], err=True, color=True)


def _say(message: str, commands: Iterable[str], rows: Sequence[str] = ()) -> None:
    """Prints the message, how the replicas were before Ctrl-C, and commands."""
    if message:
        print_message(message)
    if rows:
        width = width_of(sys.stderr)
        print_note("\n".join(["", "When Ctrl-C was pressed:", *(clipped(row, width) for row in rows)]))
    suggestions = list(commands)
    if suggestions:
        print_note("\n".join(["", *suggestions]))
