"""Classifies a replica's pod: still in progress, succeeded, failed, or disrupted by the infrastructure."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from msgspec import structs

from tarragon.base.time_arithmetic import add_seconds
from tarragon.job.eviction_notice import eviction_time, exited_after_notice
from tarragon.job.exit_codes import ExitClass, ExitCodeTable
from tarragon.job.log_rendering import render_tail
from tarragon.job.model import Replica, RestartPolicy
from tarragon.kube.core import ContainerStateTerminated, ContainerStatus, Pod

KUBELET_REJECTION_REASONS = frozenset(
    {
        "InitContainerRestartPolicyForbidden",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "PodFeatureUnsupported",
        "PodLevelResourcesNotSupported",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
        "VolumeAttachmentLimitExceeded",
    }
)
"""Reasons for which a kubelet rejects a pod that another node may accept, besides all that begin with OutOf.

Newer kubelets also say in the message that they rejected it: see `_is_kubelet_rejection`.
"""

DISRUPTION_REASONS = KUBELET_REJECTION_REASONS | {
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Preempting",
    "Shutdown",
    "Terminated",
}
"""Reasons in a pod's status that concern the node and not the program, besides all that begin with OutOf."""

LEAVING_REASON = "Leaving"
"""The reason recorded when a program ends after its pod was asked to leave (see `tarragon.job.eviction_notice`)."""

UNKNOWN_EXIT_CODE = 0xBEEF
"""Stands for the exit code when a pod failed and its main container had not ended. No table lists it."""

MAX_CLOCK_SKEW = 5.0
"""Seconds by which the clocks of a node and of an API server may differ. NTP keeps them within a fraction of one."""

MIN_TIME = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
MAX_TIME = dt.datetime(9999, 12, 31, tzinfo=dt.UTC)

_REJECTED = "Pod was rejected"

# A pod that exceeds its own disk limits is also evicted, and would be evicted on any other node.
_OWN_LIMIT = re.compile(r"exceed\w* .*\blimit\b")


class PodOutcome(Enum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DISRUPTED = "disrupted"


class ReplicaAction(Enum):
    """What follows for the replica: it continues, is done, gets a new pod, or fails the job."""

    CONTINUE = "goes on"
    COMPLETE = "done"
    REPLACE = "replaced"
    FAIL_JOB = "fatal"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTermination:
    """How a pod ended. `exit_code` is that of the main container, None if that container never terminated."""

    outcome: PodOutcome
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    finished_at: dt.datetime | None = None
    caused_by: Sequence[Replica] = ()
    """The replicas that were lost first, if that is why this one ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaState:
    """A replica's newest pod, how it ended, and what follows for the replica."""

    pod: Pod
    termination: PodTermination | None
    action: ReplicaAction
    main_container: ContainerStatus | None
    """The status of the main container, once the kubelet has reported one."""

    @property
    def is_active(self) -> bool:
        """The pod is running or will run, and is not being deleted."""
        return self.action is ReplicaAction.CONTINUE and not self.pod.metadata.is_being_deleted

    @property
    def is_leaving(self) -> bool:
        """The pod is being deleted or was asked to leave, so its end says nothing about its program."""
        return self.pod.metadata.is_being_deleted or eviction_time(self.pod) is not None

    @property
    def is_rejected_by_kubelet(self) -> bool:
        """The pod's node has rejected it, and nothing shows that it had started.

        A kubelet that restarts may also reject a running pod. As kubelets drop the container statuses of what they
        reject, such a pod looks like one that has not started.
        """
        main, ending = self.main_container, self.termination
        has_started = main is not None and (main.state.terminated or main.state.running or main.last_state.terminated)
        is_rejected = ending is not None and ending.reason == self.pod.status.reason and _is_kubelet_rejection(self.pod)
        return is_rejected and not has_started

    @property
    def ended_at(self) -> dt.datetime:
        """When the pod ended, to tell causes from consequences. A disruption at an unknown time counts as a cause."""
        if self.termination is not None and self.termination.caused_by:
            return MAX_TIME
        if self.termination is not None and self.termination.finished_at is not None:
            return self.termination.finished_at
        is_cause = self.termination is not None and self.termination.outcome is PodOutcome.DISRUPTED
        return MIN_TIME if is_cause else MAX_TIME

    @property
    def is_pod_running(self) -> bool:
        return self.is_active and self.pod.status.phase == "Running"

    @property
    def last_failure(self) -> PodTermination | None:
        """The failure of the pod, or of the latest container run within it."""
        if self.termination is not None and self.termination.outcome is PodOutcome.FAILED:
            return self.termination
        last = (self.main_container.last_state.terminated if self.main_container is not None else None) or _failed_init(
            self.pod
        )
        return None if last is None else _ending_of_container(last)

    @property
    def is_running(self) -> bool:
        """The main container is running now, and not waiting for a restart by the kubelet."""
        return self.is_pod_running and (self.main_container is None or self.main_container.state.running is not None)

    @property
    def is_ready(self) -> bool:
        return self.is_active and is_ready(self.pod)

    @property
    def container_restarts(self) -> int:
        """Restarts by the kubelet, summed over containers: this is what backoffLimit has always counted.

        Init containers that are sidecars do not count: a restart is no failure of theirs, and the others run on.
        """
        sidecars = sidecar_names(self.pod)
        init_statuses = (each for each in self.pod.status.init_container_statuses if each.name not in sidecars)
        return sum(status.restart_count for status in (*self.pod.status.container_statuses, *init_statuses))


def replica_state(pod: Pod, main: str, policy: RestartPolicy, exit_codes: ExitCodeTable) -> ReplicaState:
    """Classify a pod. `main` names the main container; if the pod has none of that name, the first one counts."""
    ending = termination_of(pod, main)
    if ending is None and policy is RestartPolicy.EXIT_CODE:
        ending = _conclusive_container_end(main_container_status(pod, main), exit_codes)
    return ReplicaState(
        pod=pod,
        termination=ending,
        action=_fate(ending, policy, exit_codes),
        main_container=main_container_status(pod, main),
    )


def unjudged(state: ReplicaState) -> ReplicaState:
    """The state of a replica whose pod has ended while it is not known yet what that means."""
    return replace(state, termination=None, action=ReplicaAction.CONTINUE)


def disrupted(state: ReplicaState, reason: str, caused_by: Sequence[Replica]) -> ReplicaState:
    """The state of a replica that ends, or can't go on, because others were lost."""
    before = state.termination
    ending = PodTermination(
        outcome=PodOutcome.DISRUPTED,
        exit_code=before.exit_code if before is not None else None,
        reason=reason,
        finished_at=before.finished_at if before is not None else None,
        caused_by=caused_by,
    )
    return replace(state, termination=ending, action=ReplicaAction.REPLACE)


def is_ready(pod: Pod) -> bool:
    """Whether all containers are ready, and so is the pod, which may have readiness gates and is not to be deleted."""
    ready = pod.condition("Ready")
    return (
        pod.status.phase == "Running"
        and not pod.metadata.is_being_deleted
        and eviction_time(pod) is None
        and (ready is None or ready.status == "True")
        and all(each.ready for each in pod.status.container_statuses)
    )


def termination_of(pod: Pod, main: str) -> PodTermination | None:
    """None while the pod is in progress. A deleted pod has succeeded only if it did so before its deletion."""
    status = main_container_status(pod, main)
    terminated = status.state.terminated if status is not None else None
    if pod.metadata.is_being_deleted and not ended_before_deletion(pod, terminated):
        return PodTermination(outcome=PodOutcome.DISRUPTED, reason="Deleted", message=pod.status.message)
    if exited_after_notice(pod, status):
        return PodTermination(outcome=PodOutcome.DISRUPTED, reason=LEAVING_REASON, finished_at=_finished(terminated))
    if _is_disrupted(pod):
        reason = pod.status.reason or "DisruptionTarget"
        return PodTermination(
            outcome=PodOutcome.DISRUPTED, reason=reason, message=pod.status.message, finished_at=_finished(terminated)
        )
    if pod.status.phase == "Succeeded" or _is_clean_for_good(pod, terminated):
        return PodTermination(outcome=PodOutcome.SUCCEEDED, exit_code=0, finished_at=_finished(terminated))
    if pod.status.phase == "Failed" or _is_failed_for_good(pod, terminated):
        return _failure(pod, terminated)
    return None


def sidecar_names(pod: Pod) -> frozenset[str]:
    """The names of init containers that keep running beside the others."""
    return frozenset(container.name for container in pod.spec.init_containers if container.is_sidecar)


def has_only_sidecars_left(pod: Pod) -> bool:
    """Whether all containers have ended for good, so that the kubelet is stopping the sidecars and the pod ends."""
    if pod.is_finished or not sidecar_names(pod):
        return False
    states = {status.name: status.state.terminated for status in pod.status.container_statuses}
    ends = [states.get(container.name) for container in pod.spec.containers]
    return all(_is_clean_for_good(pod, ended) or _is_failed_for_good(pod, ended) for ended in ends)


def _is_kubelet_rejection(pod: Pod) -> bool:
    """Whether the kubelet rejected the pod. Its reason may be one that only a plug-in of the kubelet knows."""
    status = pod.status
    says_so = not status.container_statuses and status.message.startswith(_REJECTED)
    return says_so or status.reason in KUBELET_REJECTION_REASONS or status.reason.startswith("OutOf")


def main_container_status(pod: Pod, main: str) -> ContainerStatus | None:
    """The status of the main container."""
    named = pod.container_status(main) if main else None
    if named is not None or not pod.spec.containers:
        return named
    if any(container.name == main for container in pod.spec.containers):
        return None
    return pod.container_status(pod.spec.containers[0].name)


def _fate(ending: PodTermination | None, policy: RestartPolicy, exit_codes: ExitCodeTable) -> ReplicaAction:
    if ending is None:
        return ReplicaAction.CONTINUE
    match ending.outcome:
        case PodOutcome.SUCCEEDED:
            return ReplicaAction.COMPLETE
        case PodOutcome.DISRUPTED:
            return ReplicaAction.REPLACE
        case PodOutcome.FAILED:
            return ReplicaAction.REPLACE if _is_retryable(ending, policy, exit_codes) else ReplicaAction.FAIL_JOB


def _conclusive_container_end(main: ContainerStatus | None, exit_codes: ExitCodeTable) -> PodTermination | None:
    """The end of a container that the kubelet restarts although its exit code is final: clean or permanent.

    This happens where pods have a restartPolicy of their own, as before v1alpha2. In those generations the exit code
    of the chief decided the job regardless.
    """
    last = (main.state.terminated or main.last_state.terminated) if main is not None else None
    if last is None:
        return None
    match exit_codes(last.exit_code, last.reason):
        case ExitClass.CLEAN:
            return PodTermination(outcome=PodOutcome.SUCCEEDED, exit_code=0, finished_at=last.finished_at)
        case ExitClass.PERMANENT:
            return _ending_of_container(last)
        case ExitClass.RETRYABLE:
            return None


def _is_retryable(ending: PodTermination, policy: RestartPolicy, exit_codes: ExitCodeTable) -> bool:
    match policy:
        case RestartPolicy.NEVER:
            return False
        case RestartPolicy.ON_FAILURE | RestartPolicy.ALWAYS:
            return True
        case RestartPolicy.EXIT_CODE:
            code = UNKNOWN_EXIT_CODE if ending.exit_code is None else ending.exit_code
            return exit_codes(code, ending.reason) is ExitClass.RETRYABLE


def _is_disrupted(pod: Pod) -> bool:
    if pod.status.phase not in {"Failed", "Unknown"}:
        return False
    reason = pod.status.reason
    if reason == "Evicted":
        return not _OWN_LIMIT.search(pod.status.message)
    target = pod.condition("DisruptionTarget")
    return (
        reason in DISRUPTION_REASONS or _is_kubelet_rejection(pod) or (target is not None and target.status == "True")
    )


def ended_before_deletion(
    pod: Pod, terminated: ContainerStateTerminated | None, clock_skew: float = MAX_CLOCK_SKEW
) -> bool:
    """Whether the container clearly ended before the deletion was requested.

    The node's clock says when it ended, the API server's when it was to end: the deletion timestamp is the end of the
    grace period. Their clocks may differ by `clock_skew` seconds, so a container that ended later than that before the
    request does not count: the deletion may have stopped it. An end that was seen before the request is on record.
    """
    deadline = pod.metadata.deletion_timestamp
    finished = _finished(terminated)
    if deadline is None or finished is None:
        return False
    requested_at = add_seconds(deadline, -(pod.metadata.deletion_grace_period_seconds or 0))
    return finished < add_seconds(requested_at, -clock_skew)


def _is_clean_for_good(pod: Pod, terminated: ContainerStateTerminated | None) -> bool:
    """Whether the main container succeeded and won't be restarted. Sidecars may still be running.

    Under restartPolicy Always the kubelet also restarts a container that exited with 0.
    """
    return terminated is not None and terminated.exit_code == 0 and pod.spec.restart_policy != "Always"


def _is_failed_for_good(pod: Pod, terminated: ContainerStateTerminated | None) -> bool:
    return terminated is not None and terminated.exit_code != 0 and pod.spec.restart_policy == "Never"


def _failure(pod: Pod, terminated: ContainerStateTerminated | None) -> PodTermination:
    terminated = terminated or _failed_init(pod)
    if terminated is None:
        return PodTermination(outcome=PodOutcome.FAILED, reason=pod.status.reason, message=pod.status.message)
    failure = _ending_of_container(terminated)
    # The pod's message says why the node ended the pod; the container's only says that the container was killed.
    message = "\n".join(filter(None, (pod.status.message, failure.message)))
    return replace(failure, reason=pod.status.reason or failure.reason, message=message)


def _ending_of_container(terminated: ContainerStateTerminated) -> PodTermination:
    return PodTermination(
        outcome=PodOutcome.FAILED,
        exit_code=terminated.exit_code,
        reason=terminated.reason,
        message=render_tail(terminated.message),
        finished_at=terminated.finished_at,
    )


def _failed_init(pod: Pod) -> ContainerStateTerminated | None:
    """The termination of the failed init container that kept the main container from starting.

    A sidecar is started again whatever its exit code was, so it has not failed the pod.
    """
    sidecars = sidecar_names(pod)
    for status in (each for each in pod.status.init_container_statuses if each.name not in sidecars):
        ended = status.state.terminated or status.last_state.terminated
        if ended is not None and ended.exit_code != 0 and not status.ready:
            message = ": ".join(filter(None, (f"init container {status.name}", ended.message)))
            return structs.replace(ended, message=message)
    return None


def _finished(terminated: ContainerStateTerminated | None) -> dt.datetime | None:
    return terminated.finished_at if terminated is not None else None
