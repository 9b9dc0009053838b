"""The Job controller, which runs pods until enough have succeeded or too many have failed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from tarragon.client.errors import Conflict, NotFound
from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.port import DeleteOptions
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import job_plan
from tarragon.localcluster.controllers.workloads.context import REQUEUE_SECONDS, ReconciledCache, WorkloadContext
from tarragon.localcluster.controllers.workloads.job_count import INDEX, TRACKING, Count, count, is_tracked
from tarragon.localcluster.controllers.workloads.model import JOBS, Job, Json
from tarragon.localcluster.controllers.workloads.pod_control import PodControl, pod_from
from tarragon.localcluster.controllers.workloads.pods import PODS, Pod

_MANAGER = "kubernetes.io/job-controller"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"


class JobController:
    """Also removes the tracking finalizer from pods whose Job is gone."""

    def __init__(self, context: WorkloadContext) -> None:
        self._context = context
        self._cluster = context.cluster
        self._clock = context.clock
        self.kept: ReconciledCache[Job] = ReconciledCache(context, JOBS)
        self.kept.follow(context.pods)
        self._pod_control: PodControl[Job] = PodControl(context, JOBS, "job-controller")
        self._by_name = KeyIndex(context.pods, lambda pod: [key] if (key := _job_of(pod)) else [])
        context.pods.add_event_handler(self._follow_pod)

    async def run(self) -> None:
        await self.kept.run(self._reconcile)

    def _follow_pod(self, _key: Key, _old: Pod | None, new: Pod | None) -> None:
        if new is not None and is_tracked(new) and (key := _job_of(new)) is not None:
            self.kept.queue.add(key)

    async def _reconcile(self, key: Key) -> float | None:
        job = self.kept.get(key)
        await self._release_strays(key, job)
        if job is None or job.spec.managed_by not in {"", _MANAGER}:
            return None
        if job.is_finished and (left := job_plan.seconds_to_live(job, self._clock.now())) is not None and left <= 0:
            await self._delete_expired(job)
            return None
        pods = await self._pod_control.claimed(job)
        if not self._pod_control.expectations.is_satisfied(job.metadata.uid):
            return REQUEUE_SECONDS
        if job.metadata.is_being_deleted:
            await self._release([pod for pod in pods if is_tracked(pod)])
            return None
        return await self._keep(job, pods)

    async def _keep(self, job: Job, pods: Sequence[Pod]) -> float | None:
        now = self._clock.now()
        counted = count(job, pods)
        ends = job_plan.verdict(job, pods, counted, now)
        status = job_plan.status(job, pods, counted, ends, now)
        await self._pod_control.write_status(job, job.status, status)
        await self._record_events(job, status)
        await self._release(counted.release)
        return await self._act(job, pods, counted, ends)

    async def _act(self, job: Job, pods: Sequence[Pod], counted: Count, ends: job_plan.Verdict | None) -> float | None:
        if job.is_finished:
            return job_plan.seconds_to_live(job, self._clock.now())
        plan = job_plan.plan(job, pods, counted, ends, self._clock.now())
        if plan.surplus:
            await self._release([pod for pod in plan.surplus if is_tracked(pod)])
        await self._pod_control.delete(job, [*plan.surplus, *plan.stop])
        trouble = await self._pod_control.create(job, [self._pod(job, index) for index in plan.create])
        return REQUEUE_SECONDS if trouble is not None else plan.requeue_after

    def _pod(self, job: Job, index: int | None) -> Json:
        body = pod_from(job.spec.template, job, self._pod_control.reference(job))
        metadata = body["metadata"]
        metadata["finalizers"] = [*metadata.get("finalizers", ()), TRACKING]
        if index is not None:
            text = str(index)
            metadata["generateName"] = f"{job.metadata.name}-{index}-"
            metadata["annotations"] = {**metadata.get("annotations", {}), INDEX: text}
            metadata["labels"] = {**metadata.get("labels", {}), INDEX: text}
            body["spec"] = {"hostname": f"{job.metadata.name}-{index}", **_with_index(body["spec"])}
        return body

    async def _release(self, pods: Sequence[Pod]) -> None:
        await asyncio.gather(*(self._release_one(pod) for pod in pods))

    async def _release_one(self, pod: Pod) -> None:
        rest = [each for each in pod.metadata.finalizers if each != TRACKING]
        metadata = {"uid": pod.uid, "resourceVersion": pod.metadata.resource_version, "finalizers": rest or None}
        with suppress(NotFound, Conflict):  # the watch shows the change, and the Job is reconciled again
            await self._cluster.patch(PODS, pod.metadata.key, {"metadata": metadata})

    async def _release_strays(self, key: Key, job: Job | None) -> None:
        """Remove the finalizer from pods of an earlier Job of this name."""
        pods = (self._context.pods.objects[each] for each in sorted(self._by_name.keys(key)))
        owner = JOBS.owner_identity(job.metadata) if job is not None else None
        await self._release([pod for pod in pods if pod.metadata.controller_identity != owner and is_tracked(pod)])

    async def _delete_expired(self, job: Job) -> None:
        with suppress(NotFound, Conflict):
            options = DeleteOptions(uid=job.metadata.uid, propagation_policy="Background")
            await self._cluster.delete(JOBS, job.metadata.key, options)

    async def _record_events(self, job: Job, status: Json) -> None:
        for condition in status["conditions"] or ():
            if job.has(condition["type"]) or condition["status"] != "True":
                continue
            match condition["type"]:
                case "Complete":
                    await self._pod_control.record(job, "Normal", "Completed", "Job completed")
                case "Failed":
                    await self._pod_control.record(job, "Warning", condition["reason"], condition["message"])
                case "Suspended":
                    await self._pod_control.record(job, "Normal", "Suspended", "Job suspended")
                case _:
                    pass


def _job_of(pod: Pod) -> Key | None:
    owner = pod.metadata.controller_identity
    return owner.key if owner is not None and (owner.group, owner.kind) == (JOBS.group, JOBS.kind) else None


def _with_index(spec: Json) -> Json:
    """Add the completion index to the environment of each container that does not set the variable itself."""
    variable = {"name": _INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}}

    def with_variable(container: Json) -> Json:
        known = container.get("env") or []
        if any(each.get("name") == _INDEX_VARIABLE for each in known):
            return container
        return {**container, "env": [*known, variable]}

    fields = [field for field in ("initContainers", "containers") if spec.get(field)]
    return {**spec, **{field: [with_variable(each) for each in spec[field]] for field in fields}}
