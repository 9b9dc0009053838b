"""Starts the workload controllers with their shared caches."""

from __future__ import annotations

import asyncio
import random

from tarragon.base.clock import Clock
from tarragon.client.port import Cluster
from tarragon.localcluster.controllers.workloads.context import Ground
from tarragon.localcluster.controllers.workloads.deployments import DeploymentController
from tarragon.localcluster.controllers.workloads.jobs import JobController
from tarragon.localcluster.controllers.workloads.replica_sets import ReplicaSetController


class WorkloadControllers:
    """Runs the controllers once all caches have synced."""

    def __init__(self, cluster: Cluster, clock: Clock, jitter: random.Random) -> None:
        ground = Ground(cluster, clock, jitter)
        self._replica_sets = ReplicaSetController(ground)
        self._deployments = DeploymentController(ground, self._replica_sets.kept.cache)
        self._jobs = JobController(ground)
        self._controllers = (self._replica_sets, self._deployments, self._jobs)
        self._caches = (ground.pods, *(each.kept.cache for each in self._controllers))

    async def run(self) -> None:
        """Run until cancelled. Call it once."""
        async with asyncio.TaskGroup() as tasks:
            for cache in self._caches:
                tasks.create_task(cache.run())
            for cache in self._caches:
                await cache.synced()
            for controller in self._controllers:
                tasks.create_task(controller.run())
