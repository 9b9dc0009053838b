"""What has become of one replica's pod: still on its way, ended well, ended badly, or hit by the infrastructure."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, replace
from enum import Enum

from msgspec import structs

from tarragon.base.times import later
from tarragon.job.exitcode import ExitClass, ExitCodeTable
from tarragon.job.leaving import leaves_at, left_by_itself
from tarragon.job.model import RestartPolicy
from tarragon.job.spoken import last_words
from tarragon.kube.core import ContainerStatus, Pod, Terminated

REFUSALS = frozenset(
    {
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""Reasons for which a kubelet does not take a pod that another node may take. All that begin with OutOf are such."""

DISRUPTIONS = REFUSALS | {"Evicted", "NodeLost", "NodeShutdown", "Preempting", "Shutdown", "Terminated"}
"""Reasons of a pod's status that tell of a node, not of the program; besides those that begin with OutOf."""

LEFT = "Leaving"
"""The reason of an end after a pod was told that its place is taken."""

NO_EXIT_CODE = 0xBEEF
"""What the tables of exit codes are asked when a pod failed and its main container had not ended: not in any list."""

FIRST_OF_ALL = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
LAST_OF_ALL = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)

# A pod that used more disk than its own limits allow is evicted, too, and would be again on any other node.
_OWN_LIMIT = re.compile(r"exceed\w* .*\blimit\b")


class End(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


class Fate(Enum):
    """What follows for the replica: it goes on, is done, gets a new pod, or fails the job."""

    GOES_ON = "goes on"
    DONE = "done"
    REPLACED = "replaced"
    FATAL = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a pod ended. `exit_code` is the main container's, None when it never ended by itself."""

    end: End
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    at: dt.datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A replica's newest pod, and what follows from its state."""

    pod: Pod
    ending: Ending | None
    fate: Fate
    main: ContainerStatus | None
    """Of the container that decides, once the kubelet has said something about it."""

    @property
    def is_live(self) -> bool:
        """It runs or is going to, and nobody has told it to stop."""
        return self.fate is Fate.GOES_ON and not self.pod.metadata.is_ending

    @property
    def was_told_to_go(self) -> bool:
        """Its end says nothing of its program: somebody has deleted it, or its place was taken."""
        return self.pod.metadata.is_ending or leaves_at(self.pod) is not None

    @property
    def fell_at(self) -> dt.datetime:
        """When it ended, for telling the cause from what follows from it. A disruption of unknown time is a cause."""
        if self.ending is not None and self.ending.at is not None:
            return self.ending.at
        is_cause = self.ending is not None and self.ending.end is End.DISRUPTED
        return FIRST_OF_ALL if is_cause else LAST_OF_ALL

    @property
    def is_active(self) -> bool:
        return self.is_live and self.pod.status.phase == "Running"

    @property
    def last_failure(self) -> Ending | None:
        """Of the pod, or of the latest try within it."""
        if self.ending is not None and self.ending.end is End.FAILED:
            return self.ending
        last = (self.main.last_state.terminated if self.main is not None else None) or _failed_init(self.pod)
        return None if last is None else _ending_of_container(last)

    @property
    def runs(self) -> bool:
        """At this very moment, not between two tries of the kubelet."""
        return self.is_active and (self.main is None or self.main.state.running is not None)

    @property
    def restarts_in_place(self) -> int:
        """Those of the kubelet, of all containers, as backoffLimit has always counted them."""
        statuses = (*self.pod.status.container_statuses, *self.pod.status.init_container_statuses)
        return sum(status.restart_count for status in statuses)


def member(pod: Pod, main: str, policy: RestartPolicy, exit_codes: ExitCodeTable) -> Member:
    """`main` is the container that decides; without one of that name it is the first."""
    ending = ending_of(pod, main)
    if ending is None and policy is RestartPolicy.EXIT_CODE:
        ending = _last_word(main_status(pod, main), exit_codes)
    return Member(pod=pod, ending=ending, fate=_fate(ending, policy, exit_codes), main=main_status(pod, main))


def ending_of(pod: Pod, main: str) -> Ending | None:
    """None while it is on its way. A pod that somebody deleted has ended well only if it had done so before that."""
    status = main_status(pod, main)
    terminated = status.state.terminated if status is not None else None
    if pod.metadata.is_ending and not _ended_before_deletion(pod, terminated):
        return Ending(end=End.DISRUPTED, reason="Deleted", message=pod.status.message)
    if left_by_itself(pod, status):
        return Ending(end=End.DISRUPTED, reason=LEFT, at=_finished(terminated))
    if _is_disrupted(pod):
        reason = pod.status.reason or "DisruptionTarget"
        return Ending(end=End.DISRUPTED, reason=reason, message=pod.status.message, at=_finished(terminated))
    if pod.status.phase == "Succeeded" or _is_clean_for_good(pod, terminated):
        return Ending(end=End.SUCCEEDED, exit_code=0, at=_finished(terminated))
    if pod.status.phase == "Failed" or _is_failed_for_good(pod, terminated):
        return _failure(pod, terminated)
    return None


def is_refusal(reason: str) -> bool:
    """Whether the kubelet of its node has not taken the pod."""
    return reason in REFUSALS or reason.startswith("OutOf")


def main_status(pod: Pod, main: str) -> ContainerStatus | None:
    """The status of the container that decides."""
    named = pod.container_status(main) if main else None
    if named is not None or not pod.spec.containers:
        return named
    if any(container.name == main for container in pod.spec.containers):
        return None
    return pod.container_status(pod.spec.containers[0].name)


def _fate(ending: Ending | None, policy: RestartPolicy, exit_codes: ExitCodeTable) -> Fate:
    if ending is None:
        return Fate.GOES_ON
    match ending.end:
        case End.SUCCEEDED:
            return Fate.DONE
        case End.DISRUPTED:
            return Fate.REPLACED
        case End.FAILED:
            return Fate.REPLACED if _may_try_again(ending, policy, exit_codes) else Fate.FATAL


def _last_word(main: ContainerStatus | None, exit_codes: ExitCodeTable) -> Ending | None:
    """Of a program that the kubelet starts again, although by its exit code there is nothing left to try.

    That comes from pods with a restartPolicy of their own, as before v1alpha2. Whoever decided a job was heard then.
    """
    last = (main.state.terminated or main.last_state.terminated) if main is not None else None
    if last is None:
        return None
    match exit_codes(last.exit_code, last.reason):
        case ExitClass.CLEAN:
            return Ending(end=End.SUCCEEDED, exit_code=0, at=last.finished_at)
        case ExitClass.PERMANENT:
            return _ending_of_container(last)
        case ExitClass.RETRYABLE:
            return None


def _may_try_again(ending: Ending, policy: RestartPolicy, exit_codes: ExitCodeTable) -> bool:
    match policy:
        case RestartPolicy.NEVER:
            return False
        case RestartPolicy.ON_FAILURE | RestartPolicy.ALWAYS:
            return True
        case RestartPolicy.EXIT_CODE:
            code = NO_EXIT_CODE if ending.exit_code is None else ending.exit_code
            return exit_codes(code, ending.reason) is ExitClass.RETRYABLE


def _is_disrupted(pod: Pod) -> bool:
    if pod.status.phase not in {"Failed", "Unknown"}:
        return False
    reason = pod.status.reason
    if reason == "Evicted":
        return not _OWN_LIMIT.search(pod.status.message)
    target = pod.condition("DisruptionTarget")
    return reason in DISRUPTIONS or is_refusal(reason) or (target is not None and target.status == "True")


def _ended_before_deletion(pod: Pod, terminated: Terminated | None) -> bool:
    """The deletion timestamp is when its grace ends; what ended in the second of the request may have been told to."""
    deadline = pod.metadata.deletion_timestamp
    finished = _finished(terminated)
    if deadline is None or finished is None:
        return False
    return finished < later(deadline, -(pod.metadata.deletion_grace_period_seconds or 0))


def _is_clean_for_good(pod: Pod, terminated: Terminated | None) -> bool:
    """Sidecars may run on; under Always the kubelet starts even a clean container again."""
    return terminated is not None and terminated.exit_code == 0 and pod.spec.restart_policy != "Always"


def _is_failed_for_good(pod: Pod, terminated: Terminated | None) -> bool:
    return terminated is not None and terminated.exit_code != 0 and pod.spec.restart_policy == "Never"


def _failure(pod: Pod, terminated: Terminated | None) -> Ending:
    terminated = terminated or _failed_init(pod)
    if terminated is None:
        return Ending(end=End.FAILED, reason=pod.status.reason, message=pod.status.message)
    failure = _ending_of_container(terminated)
    # Why the node ended the pod says more than that its container was killed then.
    words = "\n".join(filter(None, (pod.status.message, failure.message)))
    return replace(failure, reason=pod.status.reason or failure.reason, message=words)


def _ending_of_container(terminated: Terminated) -> Ending:
    return Ending(
        end=End.FAILED,
        exit_code=terminated.exit_code,
        reason=terminated.reason,
        message=last_words(terminated.message),
        at=terminated.finished_at,
    )


def _failed_init(pod: Pod) -> Terminated | None:
    """The init container because of which the main one never started."""
    for status in pod.status.init_container_statuses:
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.exit_code != 0 and not status.ready:
            words = ": ".join(filter(None, (f"init container {status.name}", ended.message)))
            return structs.replace(ended, message=words)
    return None


def _finished(terminated: Terminated | None) -> dt.datetime | None:
    return terminated.finished_at if terminated is not None else None
