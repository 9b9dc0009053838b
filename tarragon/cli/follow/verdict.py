"""The last output of `run`, and its exit code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import click

from tarragon.cli.follow.attending import Attendance, How
from tarragon.cli.jobview.exit_code import UNFINISHED, exit_code
from tarragon.cli.jobview.follower import Follower
from tarragon.cli.jobview.jobs import Known
from tarragon.cli.jobview.progress import FAILED, RUNNING, SUCCEEDED
from tarragon.cli.jobview.rows import UNSEEN
from tarragon.cli.jobview.target import Target
from tarragon.cli.manifest.local_images import IN_DOCKERFILE, environment_of
from tarragon.cli.manifest.overrides import without_gpus
from tarragon.cli.options.command_tree import reader_went
from tarragon.cli.options.formats import tell
from tarragon.cli.output.interrupts import SIGNALLED
from tarragon.cli.output.style import Paint
from tarragon.cli.output.terminal import Sink, sink
from tarragon.cli.output.words import elapsed, listed
from tarragon.cli.report.ending import Ending, failed, succeeded
from tarragon.cli.targets.environment import installer
from tarragon.cli.targets.next_commands import AFTERWARDS, MEANWHILE, hints
from tarragon.cli.targets.stored_logs import runs_of_job
from tarragon.job.exitcode import SINCE_TRAINING_OPERATOR_1_5
from tarragon.job.model import CleanPodPolicy, Replica, ReplicaType, SuccessPolicy
from tarragon.kube.meta import Key

CANNOT = 1
FORCED = 130
LEFT: Mapping[How, int] = MappingProxyType(
    {
        How.LEFT: UNFINISHED,
        How.TERMINATED: SIGNALLED + signal.SIGTERM,
        How.HUNG_UP: SIGNALLED + signal.SIGHUP,
    }
)
"""Exit codes if a signal ended the command while the job continues."""


def verdict(attended: Attendance, how: How, limit: float | None, paint: Paint) -> int:
    """Prints how the command ended, and returns its exit code."""
    follower, where = attended.follower, attended.where
    name, key, address = follower.job.name, follower.job.key, follower.job.address
    match how:
        case How.OVER:
            return result(attended, paint)
        case How.STOPPED:
            _say(f"Stopped {name}: the job is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return exit_code(follower.progress, follower.job.status, is_gone=True)
        case How.FORCED:
            _say(f"Killed {name}: the job is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return FORCED
        case How.LEFT | How.TERMINATED | How.HUNG_UP:
            _say(f"Detached from {name}: it continues in {key.namespace} on {where.name}.", _meanwhile(where, address))
            return LEFT[how]
        case How.TOO_LATE:
            _say(_late(attended, limit or 0), _meanwhile(where, address))
            return UNFINISHED
        case How.UNREAD:
            _say(f"The reader of the logs closed the pipe; {name} continues.", _meanwhile(where, address))
            return reader_went()
        case How.STUCK:
            _say(stuck(follower), hints(where.prompt, address, AFTERWARDS[1:]))
            return CANNOT


def _late(attended: Attendance, limit: float) -> str:
    """The message for a time limit. A job that has no operator says nothing about itself: the message points to it."""
    job = attended.follower.job
    if job.status.conditions:
        return f"{job.name} has not ended within {elapsed(limit)}; it continues."
    check = f"`{attended.where.prompt.program} check` looks for one"
    return f"{job.name} has not ended within {elapsed(limit)}: {UNSEEN}; {check}."


def result(attended: Attendance, paint: Paint) -> int:
    """Prints the result of a job that is over, on stdout, and hints on stderr; returns the exit code."""
    follower, where = attended.follower, attended.where
    name, state = follower.job.name, follower.progress.state
    if follower.is_gone:
        _say(f"{name} was deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
        return exit_code(follower.progress, follower.job.status, is_gone=True)
    if state in {SUCCEEDED, FAILED}:
        _print((succeeded if state == SUCCEEDED else failed)(ending(attended), paint))
        message = left_running(follower)
    else:
        message = f"{name} is suspended: none of its replicas run."
    _say(message, hints(where.prompt, follower.job.address, AFTERWARDS))
    return exit_code(follower.progress, follower.job.status, is_gone=follower.is_gone)


def ending(attended: Attendance) -> Ending:
    """Collects what is known of a job that has ended."""
    job, book, where = attended.follower.job, attended.listener.book, attended.where
    runs = runs_of_job(where.nodes, job)
    environment, install = _environment(job) if where.is_local else ("its image", IN_DOCKERFILE)
    return Ending(
        progress=attended.follower.progress,
        took=attended.took,
        ran={run.replica: run.seconds for run in runs if run.seconds is not None},
        first_failure=job.status.first_failure,
        deciding=deciding(job),
        tails=book.tails,
        said=book.said,
        exit_codes=job.dialect.exit_codes if job.dialect is not None else SINCE_TRAINING_OPERATOR_1_5,
        policies={group.type: group.restart_policy for group in job.job.groups} if job.job is not None else {},
        environment=environment,
        install=install,
    )


def _environment(job: Known) -> tuple[str, str]:
    """The environment in which the job ran on this machine, and the command that installs packages there."""
    found = environment_of(job)
    return str(found.folder), installer(found)


def deciding(job: Known) -> Sequence[Replica]:
    """The replicas that decide the job's result: the chief, worker 0, or all workers with that success policy."""
    if job.job is None or job.job.chief is None:
        return ()
    chief = job.job.chief
    if job.job.success_policy is SuccessPolicy.ALL_WORKERS and chief.type is ReplicaType.WORKER:
        return [Replica(ReplicaType.WORKER, index) for index in range(job.wished.get(ReplicaType.WORKER, 1))]
    return [chief]


def stuck(follower: Follower) -> str:
    """The message for a job that can never start on this machine."""
    job, wait = follower.job, follower.progress.wait
    message = [f"Error: {job.name} can never start here: {wait.message if wait is not None else ''}"]
    if without_gpus({"spec": job.object.spec})[1]:
        message.append("  `tarragon run FILE --cpu-only` runs it without the GPUs that it requests")
    return "\n".join(message)


def left_running(follower: Follower) -> str:
    """Names the replicas that cleanPodPolicy None keeps running after the job's end; empty if there are none."""
    job = follower.job.job
    names = [member.name for member in follower.progress.members if member.state == RUNNING]
    if job is None or not names or job.run_policy.clean_pods is not CleanPodPolicy.NONE:
        return ""
    verb = "runs" if len(names) == 1 else "run"
    return f"{listed(names)} still {verb}, because cleanPodPolicy is None; delete the job to end them."


def _kept(where: Target, job: Known) -> str:
    """The part of a message about kept logs; empty if the job never started."""
    return ", its logs are kept" if runs_of_job(where.nodes, job) else ""


def _logs(where: Target, job: Known) -> Iterable[str]:
    return hints(where.prompt, job.address, AFTERWARDS[:1]) if _kept(where, job) else ()


def _meanwhile(where: Target, address: Key) -> Iterable[str]:
    return hints(where.prompt, address, MEANWHILE)


def _print(lines: Iterable[str]) -> None:
    """Prints the result on stdout, like the logs; its first line also on stderr if only that is a terminal."""
    result = list(lines)
    tell(result)
    if sink(sys.stdout) is not Sink.TERMINAL and sink(sys.stderr) is Sink.TERMINAL:
        click.echo(result[0], err=True, color=True)


def _say(message: str, commands: Iterable[str]) -> None:
    if message:
        click.echo(message, err=True)
    suggestions = list(commands)
    if suggestions:
        click.echo("\n".join(["", *suggestions]), err=True)
