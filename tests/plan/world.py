"""A small world in memory for the reconciler: an API that stores, a kubelet and a scheduler that do as they are told.

It applies steps in the order that `Actions` promises, with the preconditions that they carry; it may crash between any
two writes, and decide on caches that lag behind.
"""

from __future__ import annotations

import contextlib
import copy
import datetime as dt
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS, framework_of
from tarragon.frameworks.tensorflow.replica_types import ROLES
from tarragon.job.model import Replica, ReplicaType
from tarragon.job.status import Admission, JobStatus, WaitReason
from tarragon.job.status_encoding import decode_status, encode_admission
from tarragon.kube.codec import decode, encode, format_time
from tarragon.kube.core import CONFIG_MAPS, SERVICES, Node
from tarragon.kube.event import Event
from tarragon.kube.merge_patch import apply_merge_patch, create_merge_patch
from tarragon.kube.meta import Key
from tarragon.operator.informers.cache_transforms import CachedJob, CachedPod, CachedService
from tarragon.plan.input.decode_and_validate import decode_and_validate
from tarragon.plan.objects.settings import OperatorSettings
from tarragon.plan.objects.vgpus import GpuLookup
from tarragon.plan.reconcile.decide import decide
from tarragon.plan.status.pod_mirror import pod_to_read
from tarragon.plan.view.actions import Actions, AnnotatePod, Create, Delete, ObservedJob, RejectedCreate

START = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
NODES = ("node-a", "node-b")


class ConflictError(Exception):
    """The API refused a write: what the decision was made on is not what is there."""


def manifest(
    replicas: Mapping[str, int], *, policy: str = "Never", run_policy: Mapping[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """A valid TFJob called `dist` in the namespace `n1`."""
    template = {"spec": {"containers": [{"name": "tensorflow", "image": "train", "command": ["train"]}]}}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "dist", "namespace": "n1"},
        "spec": {
            **({"runPolicy": dict(run_policy)} if run_policy is not None else {}),
            "tfReplicaSpecs": {
                kind: {"replicas": count, "restartPolicy": policy, "template": copy.deepcopy(template)}
                for kind, count in replicas.items()
            },
            **spec,
        },
    }


class World:
    """One job and what becomes of it."""

    def __init__(self, job: dict[str, Any], settings: OperatorSettings | None = None) -> None:
        self.framework: Framework = framework_of(job["apiVersion"], job["kind"]) or FRAMEWORKS[0]
        self.settings = settings or OperatorSettings()
        self.now = START
        self.refusal: RejectedCreate | None = None
        self.was_gated = False
        self.nodes: Mapping[Key, Node] | None = None
        self.find_gpus: GpuLookup = lambda _: None
        self.events: list[Event] = []
        self.pods: dict[str, dict[str, Any]] = {}
        self.services: dict[str, dict[str, Any]] = {}
        self.config_maps: dict[str, dict[str, Any]] = {}
        self.created: Counter[str] = Counter()
        self.replaced: dict[str, set[str]] = {}
        self.ended_badly: dict[str, set[str]] = {}
        self.deleted_job = False
        self._version = 0
        self.job = self._stamped(copy.deepcopy(job), uid="job-1")
        self.job["metadata"]["generation"] = 1
        self._past: list[tuple[Any, Any, Any]] = []
        self._shown = [0, 0, 0]
        self._remember()

    # ------------------------------------------------------------------------------------------------ the operator

    def observed(self) -> ObservedJob:
        return self._observed(self.job, self.pods, self.services)

    def decide(self) -> Actions:
        return decide(self.framework, self.observed(), self.now)

    def step(self, writes: int = 10**9) -> Actions:
        """Decide once and apply; the operator dies when it wants to write once more than allowed."""
        step = self.decide()
        for write in itertools.islice(self._writes(step), writes):
            write()
        self._forget()
        return step

    def lagging_step(self, behind: int) -> None:
        """Decide on caches that are some changes behind (never before what they have shown already), and apply.

        Each kind has a cache of its own: the job's is behind on one call, those of pods and services on the next.
        """
        now = len(self._past) - 1
        for kind in range(len(self._shown)):
            lag = behind if (behind + kind) % 2 else 0
            self._shown[kind] = max(self._shown[kind], now - lag)
        job, pods, services = (self._past[shown][kind] for kind, shown in enumerate(self._shown))
        step = decide(self.framework, self._observed(job, pods, services), self.now)
        with contextlib.suppress(ConflictError):
            for write in self._writes(step):
                write()

    def settle(self, rounds: int = 50) -> Actions:
        """Until nothing more is to be done now; returns the last, empty step."""
        for _ in range(rounds):
            step = self.step()
            if is_idle(step):
                return step
            self.bury()
        raise AssertionError(f"does not come to rest: {self.decide()}")

    def _observed(self, job: Any, pods: Any, services: Any) -> ObservedJob:
        found = decode(encode(job), CachedJob)
        observed = ObservedJob(
            object=found,
            decoded=decode_and_validate(self.framework, found),
            pods=[decode(encode(pod), CachedPod) for pod in pods.values()],
            services=[decode(encode(service), CachedService) for service in services.values()],
            pods_by_key={Key("n1", name): decode(encode(pod), CachedPod) for name, pod in pods.items()},
            services_by_key={Key("n1", name): decode(encode(found), CachedService) for name, found in services.items()},
            nodes=self.nodes,
            find_gpus=self.find_gpus,
            rejected_create=self.refusal,
            was_gated=self.was_gated,
            settings=self.settings,
        )
        pod = pod_to_read(observed)
        return observed if pod is None else replace(observed, complete_pod=self.pods.get(pod.metadata.name))

    def _writes(self, step: Actions) -> Iterator[Callable[[], None]]:
        """In the order that a step promises. Events are kept only when all that goes before them was written."""
        if step.metadata_patch is not None:
            yield partial(self._patch_conditionally, step.metadata_patch)
            yield partial(self.events.extend, step.events)
            return
        if step.status_patch is not None:
            yield partial(self._patch_conditionally, step.status_patch)
        yield from (partial(self._notify, notice) for notice in step.annotations)
        yield from (partial(self._delete, delete) for delete in step.deletes)
        yield from (partial(self._create, create) for create in step.creates)
        yield partial(self.events.extend, step.events)

    def _patch_conditionally(self, patch: Mapping[str, Any]) -> None:
        if patch["metadata"]["resourceVersion"] != self.job["metadata"]["resourceVersion"]:
            raise ConflictError
        metadata = {name: value for name, value in patch["metadata"].items() if name == "annotations"}
        self.patch_job({**patch, "metadata": metadata})

    def _create(self, create: Create) -> None:
        body = copy.deepcopy(dict(create.body))
        store = {SERVICES: self.services, CONFIG_MAPS: self.config_maps}.get(create.resource, self.pods)
        name = body["metadata"]["name"]
        if name in store:
            self._meet(store[name], body)
            return
        found = self._stamped(body, uid=f"uid-{self._next()}")
        if store is self.pods:
            self.created[name] += 1
            found["status"] = {"phase": "Pending"}
        store[name] = found
        self._remember()

    def _meet(self, found: dict[str, Any], body: dict[str, Any]) -> None:
        """Meeting one of our own that lives is success."""
        is_ours = found["metadata"].get("ownerReferences") == body["metadata"]["ownerReferences"]
        if not is_ours or "deletionTimestamp" in found["metadata"]:
            raise ConflictError

    def _notify(self, notice: AnnotatePod) -> None:
        pod = self.pods.get(notice.pod.name)
        if pod is None:
            return
        if pod["metadata"]["uid"] != notice.uid or pod["metadata"]["resourceVersion"] != notice.resource_version:
            raise ConflictError
        noted = apply_merge_patch(pod, {"metadata": {"annotations": dict(notice.annotations)}})
        self.pods[notice.pod.name] = self._stamped(noted, uid=notice.uid)
        self._remember()

    def _delete(self, delete: Delete) -> None:
        if delete.resource is self.framework.resource:
            self.deleted_job = True
            return
        store = self.services if delete.resource is SERVICES else self.pods
        found = store.get(delete.key.name)
        if found is None:
            return
        if found["metadata"]["uid"] != delete.uid or found["metadata"]["resourceVersion"] != delete.resource_version:
            raise ConflictError
        if "replaced" in delete.reason:
            self.replaced.setdefault(delete.key.name, set()).add(delete.uid)
        if store is self.services or found["status"]["phase"] in {"Succeeded", "Failed"}:
            del store[delete.key.name]
            self._remember()
        else:
            self.delete_pod(delete.key.name)

    def _remember(self) -> None:
        self._past.append((self.job, dict(self.pods), dict(self.services)))

    def _forget(self) -> None:
        """An operator that looks at the present never sees the past again."""
        self._past = self._past[-1:]
        self._shown = [0, 0, 0]

    # ------------------------------------------------------------------------------------------------ everybody else

    @property
    def status(self) -> JobStatus:
        return decode_status(self.job.get("status"))

    @property
    def tarragon(self) -> dict[str, Any]:
        found: dict[str, Any] = self.job.get("status", {}).get("tarragon", {})
        return found

    def conditions(self) -> dict[str, str]:
        """Type -> reason of those that are True."""
        return {condition.type: condition.reason for condition in self.status.conditions if condition.is_true}

    def patch_job(self, patch: Mapping[str, Any]) -> None:
        self.job = self._stamped(apply_merge_patch(self.job, patch), uid=self.job["metadata"]["uid"])
        self._remember()

    def edit(self, patch: Mapping[str, Any]) -> None:
        """As a user edits the spec."""
        self.patch_job({"spec": patch, "metadata": {"generation": self.job["metadata"]["generation"] + 1}})

    def admit(self, **size: int) -> None:
        """The scheduler places the gang, at its wish or at another size."""
        taken = decode_and_validate(self.framework, self.job)
        assert taken.job is not None
        wanted = {ReplicaType(kind): count for kind, count in size.items()} or dict(taken.job.requested_size())
        nodes = {replica: NODES[replica.index % len(NODES)] for replica in taken.job.replicas_of_size(wanted)}
        before = self.status.admission
        queued = before.queued_at if before is not None else self.now
        self.write_admission(Admission(queued_at=queued, admitted_at=self.now, size=wanted, nodes=nodes))

    def keep_waiting(self, code: str, message: str) -> None:
        self.write_admission(Admission(queued_at=self.now, wait=WaitReason(code=code, message=message)))

    def withdraw(self) -> None:
        self.write_admission(Admission(queued_at=self.now))

    def write_admission(self, admission: Admission) -> None:
        before = self.tarragon.get("admission") or {}
        self.patch_job({"status": {"tarragon": {"admission": create_merge_patch(before, encode_admission(admission))}}})

    def run(self, *names: str) -> None:
        """The kubelet starts these pods, or all that wait."""
        for name, pod in self.pods.items():
            if (not names and pod["status"]["phase"] == "Pending") or name in names:
                state = {"running": {"startedAt": format_time(self.now)}}
                self._set_pod(name, {"phase": "Running", "containerStatuses": [self._container(state)]})

    def exit(self, name: str, code: int, *, message: str = "", reason: str = "") -> None:
        """The main container ends for good, and with it the pod."""
        terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "message": message,
            "finishedAt": format_time(self.now),
        }
        phase = "Failed" if code else "Succeeded"
        self._set_pod(name, {"phase": phase, "containerStatuses": [self._container({"terminated": terminated})]})

    def restart_in_place(self, name: str, times: int, code: int = 1) -> None:
        """The kubelet starts the container again: so many times by now."""
        state = {"running": {"startedAt": format_time(self.now)}}
        last = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": format_time(self.now)}}
        status = {**self._container(state), "restartCount": times, "lastState": last}
        self._set_pod(name, {"phase": "Running", "containerStatuses": [status]})

    def disrupt(
        self, name: str, reason: str = "Evicted", message: str = "The node was low on resource: memory."
    ) -> None:
        self._set_pod(name, {"phase": "Failed", "reason": reason, "message": message})

    def delete_pod(self, name: str) -> None:
        """It ends within its grace period of 30 seconds; `bury` makes it go."""
        pod = self.pods[name]
        if "deletionTimestamp" in pod["metadata"]:
            return
        ends = format_time(self.now + dt.timedelta(seconds=30))
        metadata = {**pod["metadata"], "deletionTimestamp": ends, "deletionGracePeriodSeconds": 30}
        self.pods[name] = self._stamped({**pod, "metadata": metadata}, uid=metadata["uid"])
        self._remember()

    def bury(self) -> None:
        """Pods that were deleted are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if "deletionTimestamp" not in pod["metadata"]}
        self._remember()

    def vanish(self, name: str) -> None:
        """Gone without a word, as after the forced deletion of a lost node's pods."""
        del self.pods[name]
        self._remember()

    def pass_time(self, seconds: float) -> None:
        self.now += dt.timedelta(seconds=seconds)

    def stranger(self, name: str, kind: str = "pods") -> None:
        """Somebody else has an object of that name."""
        found = self._stamped({"metadata": {"name": name, "namespace": "n1"}}, uid=f"stranger-{self._next()}")
        if kind == "pods":
            self.pods[name] = {**found, "status": {"phase": "Running"}}
        else:
            self.services[name] = found
        self._remember()

    def own_pods(self) -> dict[str, dict[str, Any]]:
        return {name: pod for name, pod in self.pods.items() if pod["metadata"].get("ownerReferences")}

    def replica(self, name: str) -> Replica:
        word, _, index = name.removeprefix("dist-").rpartition("-")
        return Replica(next(kind for kind in ROLES if kind.lower() == word), int(index))

    def _container(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return {"name": self.framework.main_container, "state": state, "restartCount": 0}

    def _set_pod(self, name: str, status: dict[str, Any]) -> None:
        pod = self.pods[name]
        self.pods[name] = self._stamped({**pod, "status": status}, uid=pod["metadata"]["uid"])
        if status["phase"] == "Failed":
            self.ended_badly.setdefault(name, set()).add(pod["metadata"]["uid"])
        self._remember()

    def _stamped(self, found: dict[str, Any], uid: str) -> dict[str, Any]:
        created = found["metadata"].get("creationTimestamp", format_time(self.now))
        stamps = {"uid": uid, "resourceVersion": str(self._next()), "creationTimestamp": created}
        return {**found, "metadata": {**found["metadata"], **stamps}}

    def _next(self) -> int:
        self._version += 1
        return self._version


def is_idle(step: Actions) -> bool:
    """It writes nothing; it may still want to be woken."""
    return not (
        step.metadata_patch or step.status_patch or step.annotations or step.deletes or step.creates or step.events
    )
