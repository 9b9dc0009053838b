"""Cron jobs: a job at each time of a schedule."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress

from msgspec import to_builtins

from tarragon.client.errors import AlreadyExists, ApiError, Conflict, NotFound
from tarragon.client.informer.cache_reader import Index
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import DeleteOptions
from tarragon.kube.codec import timestamp
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.workloads import cron_plan
from tarragon.localcluster.controllers.workloads.context import (
    LOOK_AGAIN_SECONDS,
    Ground,
    Kept,
    Unseen,
    owners,
)
from tarragon.localcluster.controllers.workloads.model import CRON_JOBS, JOBS, CronJob, Job, Json
from tarragon.localcluster.controllers.workloads.pod_control import Hands


class CronJobController:
    """A job's name says which start it is for: what is made twice is there already."""

    def __init__(self, ground: Ground, jobs: Cache[Job]) -> None:
        self._cluster = ground.cluster
        self._clock = ground.clock
        self._jobs = jobs
        self._owned = Index(jobs, owners)
        self.kept: Kept[CronJob] = Kept(ground, CRON_JOBS)
        self.kept.follow(jobs)
        self._hands: Hands[CronJob] = Hands(ground, CRON_JOBS, "cronjob-controller")
        self._unseen = Unseen(jobs)

    async def run(self) -> None:
        await self.kept.run(self._look)

    async def _look(self, key: Key) -> float | None:
        cron_job = self.kept.get(key)
        if cron_job is None:
            return None
        uid = cron_job.metadata.uid
        if not self._unseen.is_settled(uid):
            return LOOK_AGAIN_SECONDS
        jobs = [self._jobs.objects[each] for each in sorted(self._owned.keys(self._hands.identity(cron_job)))]
        plan = cron_plan.plan(cron_job, jobs, self._clock.now())
        for job in plan.forget:
            await self._delete(cron_job, job)
        if plan.late:
            await self._hands.tell(cron_job, "Warning", "MissSchedule", plan.late)
        for job in plan.stop:
            await self._delete(cron_job, job)
        if plan.start is not None:
            await self._start(cron_job, plan.start)
        status = cron_plan.status(jobs, cron_job.status, plan.start)
        await self._hands.write_status(cron_job, cron_job.status, status)
        return plan.again

    async def _start(self, cron_job: CronJob, at: dt.datetime) -> None:
        try:
            made = await self._cluster.create(JOBS, self._job(cron_job, at))
        except AlreadyExists:
            return  # by one who was killed before it could write that down
        except ApiError as error:
            await self._hands.tell(cron_job, "Warning", "FailedCreate", f"Error creating job: {error}")
            raise
        self._unseen.wrote(cron_job.metadata.uid, made.metadata.resource_version)
        await self._hands.tell(cron_job, "Normal", "SuccessfulCreate", f"Created job {made.metadata.name}")

    def _job(self, cron_job: CronJob, at: dt.datetime) -> Json:
        template = cron_job.spec.job_template
        said = template.get("metadata") or {}
        annotations = {**(said.get("annotations") or {}), cron_plan.SCHEDULED: timestamp(at)}
        return {
            "metadata": {
                "name": cron_plan.job_name(cron_job, at),
                "namespace": cron_job.metadata.namespace,
                "annotations": annotations,
                "labels": said.get("labels") or {},
                "ownerReferences": [to_builtins(self._hands.reference(cron_job))],
            },
            "spec": template.get("spec") or {},
        }

    async def _delete(self, cron_job: CronJob, job: Job) -> None:
        with suppress(NotFound, Conflict):
            options = DeleteOptions(uid=job.metadata.uid, propagation="Background")
            await self._cluster.delete(JOBS, job.metadata.key, options)
            self._unseen.deleted(cron_job.metadata.uid, job)
            await self._hands.tell(cron_job, "Normal", "SuccessfulDelete", f"Deleted job {job.metadata.name}")
