"""Whether a job's TensorBoard runs, and why not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from tarragon.cli.jobview.causes import ReplicaEnd, ReplicaEnvironment, probable_causes
from tarragon.cli.jobview.jobs import ClusterJob
from tarragon.cli.output.log_lines import last_lines, terminal_text
from tarragon.job.tensorboard import IMAGE_ANNOTATION
from tarragon.kube.core import ContainerStateTerminated, ContainerStatus, Pod
from tarragon.plan.reconcile.tensorboard import CONTAINER

_NO_TENSORBOARD = re.compile(r"(?:No module named|module specification for) '?tensorboard")
_LAST_LINES = 3


def tensorboard_problems(job: ClusterJob, pods: Iterable[Pod], install: str) -> Iterator[str]:
    """Yields why the job's TensorBoard does not run; nothing if it does.

    `pods` may contain pods of other jobs. `install` is the command that installs packages in its environment.
    """
    if job.job is None or job.dialect is None or job.job.tensorboard is None:
        return
    is_over = job.status.phase.is_final
    if is_over and job.job.tensorboard.ends_with_job:
        return
    name, owner = job.dialect.names.tensorboard(job.job), job.as_owner
    pod = next((pod for pod in pods if pod.metadata.name == name and pod.metadata.controller_identity == owner), None)
    if pod is None:
        yield "is not running: its pod is gone" if is_over else "is not running yet: its pod does not exist"
        return
    main = pod.container_status(CONTAINER)
    if main is not None and main.state.running is not None:
        return
    end = _last_end(main)
    yield f"is not running: pod {name} is {_state(pod, main)}{_exit(end)}"
    lines = last_lines(end.message.split("\n"), _LAST_LINES) if end is not None else []
    yield from (f"  │ {terminal_text(line, colors=False)}" for line in lines)
    yield from _remedies(lines, job.job.tensorboard.image, install)


def _state(pod: Pod, main: ContainerStatus | None) -> str:
    """Returns the pod's phase, with the message of the kubelet or the scheduler if it waits."""
    waiting = main.state.waiting if main is not None else None
    if waiting is not None and waiting.reason:
        return ": ".join(filter(None, (waiting.reason, waiting.message)))
    scheduled = pod.condition("PodScheduled")
    if not pod.spec.node_name and scheduled is not None and scheduled.status == "False":
        return f"{pod.status.phase}: {scheduled.message}"
    return pod.status.phase


def _last_end(main: ContainerStatus | None) -> ContainerStateTerminated | None:
    return None if main is None else main.state.terminated or main.last_state.terminated


def _exit(end: ContainerStateTerminated | None) -> str:
    return "" if end is None else f"; it ended with exit code {end.exit_code}"


def _remedies(lines: list[str], image: str, install: str) -> Iterator[str]:
    if any(map(_NO_TENSORBOARD.search, lines)):
        yield f"Probably: TensorBoard is not installed in {image}"
        yield f"  {install} tensorboard, or use an image that has it: annotation {IMAGE_ANNOTATION}"
        return
    for cause in probable_causes(ReplicaEnd(lines=lines, environment=ReplicaEnvironment(install=install))):
        yield f"Probably: {cause.summary}"
        yield f"  {cause.remedy}"
