"""What is said at the end of `run`, and the exit code that goes with it."""

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
"""By whom we were ended; the job goes on."""


def verdict(attended: Attendance, how: How, limit: float | None, paint: Paint) -> int:
    """The exit code, once it has been said why."""
    follower, where = attended.follower, attended.where
    name, key, address = follower.job.name, follower.job.key, follower.job.address
    match how:
        case How.OVER:
            return result(attended, paint)
        case How.STOPPED:
            _say(f"Stopped {name}: it is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return exit_code(follower.progress, follower.job.status, is_gone=True)
        case How.FORCED:
            _say(f"Killed {name}: it is deleted{_kept(where, follower.job)}.", _logs(where, follower.job))
            return FORCED
        case How.LEFT | How.TERMINATED | How.HUNG_UP:
            _say(f"Left {name} alone: it goes on in {key.namespace} on {where.name}.", _meanwhile(where, address))
            return LEFT[how]
        case How.TOO_LATE:
            _say(_late(attended, limit or 0), _meanwhile(where, address))
            return UNFINISHED
        case How.UNREAD:
            _say(f"Nobody reads the logs any more; {name} goes on.", _meanwhile(where, address))
            return reader_went()
        case How.STUCK:
            _say(stuck(follower), hints(where.prompt, address, AFTERWARDS[1:]))
            return CANNOT


def _late(attended: Attendance, limit: float) -> str:
    """Without an operator a job would wait for ever, and nothing of it would say why."""
    job = attended.follower.job
    if job.status.conditions:
        return f"{job.name} has not ended within {elapsed(limit)}; it goes on."
    check = f"`{attended.where.prompt.program} check` looks for one"
    return f"{job.name} has not ended within {elapsed(limit)}: {UNSEEN}; {check}."


def result(attended: Attendance, paint: Paint) -> int:
    """Of a job that is over: its own result on stdout, all else on stderr."""
    follower, where = attended.follower, attended.where
    name, state = follower.job.name, follower.progress.state
    if follower.is_gone:
        _say(f"{name} was deleted by somebody{_kept(where, follower.job)}.", _logs(where, follower.job))
        return exit_code(follower.progress, follower.job.status, is_gone=True)
    if state in {SUCCEEDED, FAILED}:
        _print((succeeded if state == SUCCEEDED else failed)(ending(attended), paint))
        words = left_running(follower)
    else:
        words = f"{name} is suspended: nothing of it runs."
    _say(words, hints(where.prompt, follower.job.address, AFTERWARDS))
    return exit_code(follower.progress, follower.job.status, is_gone=follower.is_gone)


def ending(attended: Attendance) -> Ending:
    """Everything that is known of a job that has ended."""
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
    """On this machine: the folder in which it ran, and what installs something there."""
    found = environment_of(job)
    return str(found.folder), installer(found)


def deciding(job: Known) -> Sequence[Replica]:
    """Whose end is the job's: the chief, worker 0, or all workers where the job says so."""
    if job.job is None or job.job.chief is None:
        return ()
    chief = job.job.chief
    if job.job.success_policy is SuccessPolicy.ALL_WORKERS and chief.type is ReplicaType.WORKER:
        return [Replica(ReplicaType.WORKER, index) for index in range(job.wished.get(ReplicaType.WORKER, 1))]
    return [chief]


def stuck(follower: Follower) -> str:
    """Why it can never start, and what may help."""
    job, wait = follower.job, follower.progress.wait
    words = [f"Error: {job.name} can never start here: {wait.message if wait is not None else ''}"]
    if without_gpus({"spec": job.object.spec})[1]:
        words.append("  `tarragon run FILE --cpu-only` trains it without the GPUs that it asks for")
    return "\n".join(words)


def left_running(follower: Follower) -> str:
    """Replicas that go on although the job is over, because it says so; empty where there are none."""
    job = follower.job.job
    names = [member.name for member in follower.progress.members if member.state == RUNNING]
    if job is None or not names or job.run_policy.clean_pods is not CleanPodPolicy.NONE:
        return ""
    verb = "runs" if len(names) == 1 else "run"
    return f"{listed(names)} still {verb}, as cleanPodPolicy is None; deleting the job ends what is left."


def _kept(where: Target, job: Known) -> str:
    """One that never began has no logs."""
    return ", its logs are kept" if runs_of_job(where.nodes, job) else ""


def _logs(where: Target, job: Known) -> Iterable[str]:
    return hints(where.prompt, job.address, AFTERWARDS[:1]) if _kept(where, job) else ()


def _meanwhile(where: Target, address: Key) -> Iterable[str]:
    return hints(where.prompt, address, MEANWHILE)


def _print(lines: Iterable[str]) -> None:
    """The result goes where the logs went; somebody who looks at a terminal meanwhile sees it, too."""
    told = list(lines)
    tell(told)
    if sink(sys.stdout) is not Sink.TERMINAL and sink(sys.stderr) is Sink.TERMINAL:
        click.echo(told[0], err=True, color=True)


def _say(words: str, commands: Iterable[str]) -> None:
    if words:
        click.echo(words, err=True)
    hinted = list(commands)
    if hinted:
        click.echo("\n".join(["", *hinted]), err=True)
