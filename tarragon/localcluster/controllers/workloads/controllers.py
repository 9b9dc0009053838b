"""Starts the workload controllers with their shared caches."""

from __future__ import annotations

import asyncio
import random

from tarragon.base.clock import Clock
from tarragon.client.port import Client
from tarragon.localcluster.controllers.workloads.context import WorkloadContext
from tarragon.localcluster.controllers.workloads.deployments import DeploymentController
from tarragon.localcluster.controllers.workloads.jobs import JobController
from tarragon.localcluster.controllers.workloads.replica_sets import ReplicaSetController


class WorkloadControllers:
    """Runs the controllers once all caches have synced."""

    def __init__(self, cluster: Client, clock: Clock, jitter: random.Random) -> None:
        context = WorkloadContext(cluster, clock, jitter)
        self._replica_sets = ReplicaSetController(context)
        self._deployments = DeploymentController(context, self._replica_sets.kept.cache)
        self._jobs = JobController(context)
        self._controllers = (self._replica_sets, self._deployments, self._jobs)
        self._caches = (context.pods, *(each.kept.cache for each in self._controllers))

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.run())
            for cache in self._caches:
                await cache.wait_for_sync()
            for controller in self._controllers:
                tasks.create_task(controller.run())
