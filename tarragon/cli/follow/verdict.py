"""The last output of `run`, and its exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import click

from tarragon.cli.follow.attending import FollowEnd, FollowSession
from tarragon.cli.jobview.exit_code import UNFINISHED, exit_code
from tarragon.cli.jobview.follower import JobFollower
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.jobview.progress import FAILED, RUNNING, SUCCEEDED
from tarragon.cli.jobview.rows import NOT_PROCESSED, reason
from tarragon.cli.jobview.target import ClusterTarget
from tarragon.cli.manifest.overrides import cpu_only_hint
from tarragon.cli.manifest.replica_environments import replica_environments
from tarragon.cli.options.command_tree import handle_broken_pipe
from tarragon.cli.options.formats import print_lines
from tarragon.cli.output.interrupts import SIGNAL_EXIT_BASE
from tarragon.cli.output.style import Paint
from tarragon.cli.output.terminal import Sink, sink_of
from tarragon.cli.output.words import duration_text, joined
from tarragon.cli.report.ending import FinishedJob, failure_report, success_report
from tarragon.cli.targets.next_commands import WHEN_FINISHED, WHILE_RUNNING, next_commands
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.job.exit_codes import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Replica, SuccessPolicy
from tarragon.kube.meta import Key

NEVER_FITS_CODE = 1
KILLED_CODE = 130
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
            _say(f"Stopped {name}: the job is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return exit_code(follower.progress, follower.job.status, is_gone=True)
        case FollowEnd.KILLED:
            _say(f"Killed {name}: the job is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return KILLED_CODE
        case FollowEnd.DETACHED | FollowEnd.TERMINATED | FollowEnd.HUNG_UP:
            _say(f"Detached from {name}: it continues in {key.namespace} on {where.name}.", _meanwhile(where, address))
            return DETACHED_CODES[how]
        case FollowEnd.TIMED_OUT:
            _say(_late(attended, limit or 0), _meanwhile(where, address))
            return UNFINISHED
        case FollowEnd.PIPE_CLOSED:
            _say(f"The reader of the logs closed the pipe; {name} continues.", _meanwhile(where, address))
            return handle_broken_pipe()
        case FollowEnd.NEVER_FITS:
            _say(never_fits_message(follower), next_commands(where.command_prefix, address, WHEN_FINISHED[1:]))
            return NEVER_FITS_CODE


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
        message = still_running_message(follower)
    else:
        message = f"{name} is suspended: none of its replicas run."
    _say(message, next_commands(where.command_prefix, follower.job.command_key, WHEN_FINISHED))
    return exit_code(follower.progress, follower.job.status, is_gone=follower.is_deleted)


def finished_job(attended: FollowSession) -> FinishedJob:
    """Collects what is known of a job that has ended."""
    job, book, where = attended.follower.job, attended.streamer.positions, attended.target
    runs = runs_of_job(where.nodes_folder, job)
    return FinishedJob(
        progress=attended.follower.progress,
        seconds=attended.seconds,
        run_seconds={run.replica: run.seconds for run in runs if run.seconds is not None},
        first_failure=job.status.first_failure,
        deciding_replicas=deciding_replicas(job),
        tails=book.tails,
        line_counts=book.line_counts,
        exit_codes=job.dialect.exit_codes if job.dialect is not None else SINCE_TRAINING_OPERATOR_1_5,
        policy_of=job.restart_policy_of,
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


def never_fits_message(follower: JobFollower) -> str:
    """The message for a job that can never start on this machine."""
    job, wait = follower.job, follower.progress.wait
    message = [f"Error: {job.name} can never start here: {wait.message if wait is not None else ''}"]
    if hint := cpu_only_hint(job.object.spec):
        message.append(f"  {hint}")
    return "\n".join(message)


def still_running_message(follower: JobFollower) -> str:
    """Names the replicas that cleanPodPolicy None keeps running after the job's end; empty if there are none."""
    job = follower.job.job
    names = [member.name for member in follower.progress.replicas if member.state == RUNNING]
    if job is None or not names or job.run_policy.clean_pod_policy is not CleanPodPolicy.NONE:
        return ""
    verb = "runs" if len(names) == 1 else "run"
    return f"{joined(names)} still {verb}, because cleanPodPolicy is None; delete the job to end them."


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


def _say(message: str, commands: Iterable[str]) -> None:
    if message:
        click.echo(message, err=True)
    suggestions = list(commands)
    if suggestions:
        click.echo("\n".join(["", *suggestions]), err=True)
