"""The kubelet of a process node: runs the pods bound to one node as local processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.informer.cache_reader import CacheError, CacheRecovery, KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.client.port import Client, Selector
from tarragon.kube.core import SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.localcluster.home.home import write_private_file
from tarragon.localcluster.kubelet.base.files import try_lock, unlock
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import KUBELET_PODS, Pod
from tarragon.localcluster.kubelet.devices.devices import node_devices
from tarragon.localcluster.kubelet.network.container_ports import ContainerPorts
from tarragon.localcluster.kubelet.network.ports import PortAllocator
from tarragon.localcluster.kubelet.network.service_links import ServiceLinks
from tarragon.localcluster.kubelet.node.node import NodeRegistration, NodeSettings
from tarragon.localcluster.kubelet.pod import records, stored_logs
from tarragon.localcluster.kubelet.pod.admission import NodeAllocations
from tarragon.localcluster.kubelet.pod.checkpoint import REMOVED_PREFIX, remove_folder
from tarragon.localcluster.kubelet.pod.context import NodeContext
from tarragon.localcluster.kubelet.pod.launch import Launcher
from tarragon.localcluster.kubelet.pod.pod import FULL_DISK_PAUSE, SHUTDOWN, PodWorker
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.pod.recorder import PodEventRecorder
from tarragon.localcluster.kubelet.pod.threads import sharing_groups
from tarragon.localcluster.kubelet.probes.handlers import LocalActionRunner
from tarragon.localcluster.kubelet.resources.eviction_manager import EvictionManager
from tarragon.localcluster.kubelet.rsh.hosts import HostNames
from tarragon.localcluster.kubelet.rsh.programs import NodePrograms
from tarragon.localcluster.kubelet.shim import shim, shim_client
from tarragon.localcluster.kubelet.shim.shim_client import ShimClient
from tarragon.localcluster.kubelet.volumes import mounts
from tarragon.localcluster.kubelet.volumes.refresh import VolumeRefresher
from tarragon.localcluster.kubelet.volumes.tokens import ApiAccess, TokenRenewer

MAINTENANCE_SECONDS = 12 * 3600.0
PRUNE_AFTER_REMOVALS = 50
"""Stored logs are pruned after this many pods were removed."""

_log = structlog.get_logger()


class Kubelet:
    """Runs the pods of one node until `run` is cancelled or `stop` is called.

    Containers outlive the kubelet, and the next `run` adopts them. `end_all` ends the containers too, for a node that
    is being shut down.
    """

    def __init__(self, cluster: Client, node: NodeSettings, clock: Clock, pod_api: ApiAccess | None = None) -> None:
        self._cluster = cluster
        self._settings = node
        self._pod_api = pod_api
        self._clock = clock
        self._folder = NodeFolder(node.folder)
        self.recorder = PodEventRecorder(cluster, clock)
        self.node_registration = NodeRegistration(cluster, node, clock)
        self.eviction_manager = EvictionManager(self._folder, clock, self.recorder.record)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._uid_of: dict[Key, str] = {}
        self._removed = 0
        self._stopped = asyncio.Event()
        self._removal = asyncio.Event()

    @property
    def logs(self) -> NodeLogs:
        """The container logs of this node, for `Api.pod_logs`; readable while the kubelet does not run."""
        return NodeLogs(self._folder, self._clock)

    def live_runs(self) -> Mapping[str, Mapping[str, Path]]:
        """The run folder of each live container, by pod UID and container name."""
        return {uid: worker.live_runs() for uid, worker in self._workers.items()}

    async def run(self) -> None:
        """Run the pods. Raises TarragonError when another kubelet runs this node, or ports cannot be claimed."""
        self._folder.prepare()
        with _locked(self._folder), contextlib.closing(self._port_book()) as ports:
            NodePrograms(self._folder).compile()
            containers = ShimClient(shim_client.compile_shim(self._folder.path), self._clock, self._wake)
            try:
                await self._serve(ports, containers)
            finally:
                await containers.close()

    def stop(self) -> None:
        """Make `run` return. The containers keep running."""
        self._stopped.set()

    async def end_all(self) -> None:
        """End all containers, each with its pod's grace period, while `run` is active; return when all pods ended.

        The pods become Failed with the reason of a node shutdown.
        """
        workers = list(self._workers.values())
        for worker in workers:
            worker.end(SHUTDOWN)
        await asyncio.gather(*(worker.wait_ended() for worker in workers))

    def _port_book(self) -> PortAllocator:
        return PortAllocator(self._folder.home_nodes, self._settings.port_registry, self._clock)

    async def _serve(self, ports: PortAllocator, containers: ShimClient) -> None:
        jitter = random.Random()
        identity = _identity(self._folder)
        mine = Selector(field_selector=f"spec.nodeName={self._settings.name}")
        pods = Informer(self._cluster, KUBELET_PODS, self._clock, mine, jitter=jitter)
        services = Informer(self._cluster, SERVICES, self._clock, jitter=jitter)
        reach = ContainerPorts(self._settings.name, ports, services.objects)
        context = self._pod_context(identity, ports, containers, LocalActionRunner(reach, self._clock))
        context.launcher.service_variables = ServiceLinks(services).variables
        context.launcher.sharing_pods = KeyIndex(pods, sharing_groups).count
        for cache in (pods, services):
            cache.on_error(_report)
            cache.on_recovery(_report_end)
        async with asyncio.TaskGroup() as group:
            background_tasks = [
                group.create_task(self.recorder.run()),
                group.create_task(self.node_registration.run()),
                group.create_task(self.eviction_manager.run()),
                group.create_task(pods.run()),
                group.create_task(services.run()),
                group.create_task(self._maintain_ports(ports, services)),
                group.create_task(self._renew_tokens()),
                group.create_task(self._refresh_volumes(context, pods)),
                group.create_task(self._follow_pods(context, pods, group)),
            ]
            await self._stopped.wait()
            for task in [*background_tasks, *self._tasks.values()]:
                task.cancel()

    def _pod_context(
        self, identity: str, ports: PortAllocator, containers: ShimClient, handlers: LocalActionRunner
    ) -> NodeContext:
        settings = self._settings
        return NodeContext(
            cluster=self._cluster,
            clock=self._clock,
            settings=settings,
            registration=self.node_registration,
            identity=identity,
            folder=self._folder,
            shims=containers,
            ports=ports,
            ledger=NodeAllocations(
                settings.capacity,
                settings.overcommitted,
                node_devices(settings.capacity, settings.gpus),
                settings.gpu_memory,
            ),
            launcher=Launcher(self._cluster, settings, self._folder, ports, self._pod_api),
            recorder=self.recorder,
            handlers=handlers,
            host_names=HostNames(self._folder),
        )

    async def _follow_pods(self, context: NodeContext, pods: Informer[Pod], group: asyncio.TaskGroup) -> None:
        """Start a worker for each pod of the node, then follow the watch.

        Pods that this node has admitted come first, vanished ones too: what they hold must be known before a new pod is
        admitted, and a pod must see one that had its name before.
        """
        for leftover in self._folder.pods.glob(f"{REMOVED_PREFIX}*"):
            await asyncio.to_thread(mounts.remove_tree, leftover)
        await asyncio.to_thread(_kill_strays, context.identity, self._folder)
        await asyncio.to_thread(context.host_names.prune)
        await pods.wait_for_sync()
        # No await between here and `subscribe`: a change in between would be missed.
        recorded = self._recorded_uids()
        listed = sorted(pods.objects.values(), key=_created)
        session = _Session(context, pods, group)
        for uid in recorded - {pod.metadata.uid for pod in listed}:
            self._clean_up_unlisted(session, uid)
        for pod in sorted(listed, key=self._awaits_admission):
            if pod.metadata.uid in recorded or _needs_worker(pod):
                self._start_worker(session, pod)
        pods.add_event_handler(lambda _, old, new: self._on_pod_change(session, old, new))

    def _awaits_admission(self, pod: Pod) -> bool:
        record = records.load(self._folder.pod(pod.metadata.uid))
        return record is None or record.awaits_admission

    def _recorded_uids(self) -> set[str]:
        return {path.name for path in self._folder.pods.iterdir() if not path.name.startswith(REMOVED_PREFIX)}

    def _on_pod_change(self, session: _Session, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        worker = self._workers.get(pod.metadata.uid)
        if worker is not None:
            if new is None:
                worker.on_deleted()
            else:
                worker.update(new)
        elif new is None:
            self._clean_up_deleted(session, pod)
        elif _needs_worker(new):
            self._start_worker(session, new)

    def _start_worker(self, session: _Session, pod: Pod) -> PodWorker:
        uid = pod.metadata.uid
        predecessor = self._workers.get(self._uid_of.get(pod.metadata.key, ""))
        worker = PodWorker(session.context, pod)
        self._workers[uid] = worker
        self._uid_of[pod.metadata.key] = uid
        self.eviction_manager.add(worker)
        task = session.group.create_task(worker.run(predecessor, self._ending_workers), name=f"pod {pod.metadata.key}")
        self._tasks[uid] = task
        task.add_done_callback(lambda task: self._on_worker_done(session, worker, task))
        return worker

    def _ending_workers(self) -> list[PodWorker]:
        return [worker for worker in self._workers.values() if worker.holds_resources_of_ended_pod]

    def _clean_up_unlisted(self, session: _Session, uid: str) -> None:
        """Clean up after a pod that was deleted while no kubelet ran."""
        pod = records.load_manifest(self._folder.pod(uid))
        if pod is None or pod.metadata.uid != uid:
            remove_folder(self._folder.pod(uid).path)  # no container was ever started there
        else:
            self._start_worker(session, pod).on_deleted()

    def _clean_up_deleted(self, session: _Session, pod: Pod) -> None:
        """Clean up after a finished pod that was deleted."""
        if self._folder.pod(pod.metadata.uid).path.exists():
            self._start_worker(session, pod).on_deleted()

    def _on_worker_done(self, session: _Session, worker: PodWorker, task: asyncio.Task[None]) -> None:
        """Drop the worker, and start another if the pod changed while the worker finished."""
        pod = worker.pod
        uid, key = pod.metadata.uid, pod.metadata.key
        self._workers.pop(uid, None)
        self.eviction_manager.remove(worker)
        self._tasks.pop(uid, None)
        if self._uid_of.get(key) == uid:
            del self._uid_of[key]
        self._removed += 1
        self._removal.set()
        if task.cancelled() or task.exception():
            return
        stored = session.pods.objects.get(key)
        if stored is None or stored.metadata.uid != uid:
            self._clean_up_deleted(session, pod)
        elif _needs_worker(stored):
            self._start_worker(session, stored)

    def _wake(self, run: Path) -> None:
        """Wake the pod's worker, as a container started or ended. `run` is `<node>/pods/<uid>/runs/<container>/<n>`."""
        if worker := self._workers.get(run.parents[2].name):
            worker.wake()

    async def _renew_tokens(self) -> None:
        if self._pod_api is not None:
            await TokenRenewer(self._pod_api.tokens, self._folder, self._clock).run(self._unfinished)

    async def _refresh_volumes(self, context: NodeContext, pods: Informer[Pod]) -> None:
        keeper = VolumeRefresher(self._cluster, self._clock, context.launcher.refresh)
        pods.add_event_handler(keeper.on_pod_change)
        await keeper.run(self._unfinished)

    def _unfinished(self) -> list[Pod]:
        return [worker.pod for worker in self._workers.values() if not worker.pod.is_finished]

    async def _maintain_ports(self, ports: PortAllocator, services: Informer[Service]) -> None:
        """Free the ports of deleted Services; prune stored logs and renew port claims now and then.

        What fails on a full disk is repeated soon; the pods need none of it.
        """
        await services.wait_for_sync()
        services.add_event_handler(lambda _key, _old, new: self._removal.set() if new is None else None)
        self._removal.set()
        while True:
            self._removed = 0
            done = [
                await asyncio.to_thread(self._maintain, lambda: stored_logs.prune(self._folder)),  # gives back space
                self._maintain(lambda: self._release_ports_of_vanished_pods(ports)),
                self._maintain(ports.renew_claims),
            ]
            due = self._clock.monotonic() + (MAINTENANCE_SECONDS if all(done) else FULL_DISK_PAUSE)
            while self._removed < PRUNE_AFTER_REMOVALS and self._clock.monotonic() < due:
                if not self._maintain(
                    lambda: ports.free_idle(lambda namespace, name: Key(namespace, name) in services.objects)
                ):
                    due = min(due, self._clock.monotonic() + FULL_DISK_PAUSE)
                await self._wait_for_removal(due)

    def _release_ports_of_vanished_pods(self, ports: PortAllocator) -> None:
        prefix = f"{self._settings.name}/"
        recorded = self._recorded_uids()
        ports.retain_users(lambda user: not user.startswith(prefix) or user.removeprefix(prefix) in recorded)

    def _maintain(self, step: Callable[[], None]) -> bool:
        """Run a step. Returns False if the disk does not allow it now."""
        try:
            step()
        except OSError as error:
            _log.warning("the kubelet cannot maintain its files", node=self._settings.name, error=str(error))
            return False
        return True

    async def _wait_for_removal(self, due: float) -> None:
        removal = asyncio.ensure_future(self._removal.wait())
        timer = asyncio.ensure_future(self._clock.sleep(due - self._clock.monotonic()))
        try:
            await asyncio.wait({removal, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            removal.cancel()
            timer.cancel()
        self._removal.clear()


async def end_all_containers(folder: Path, clock: Clock) -> None:
    """End all containers of a node whose kubelet does not run, each with its own grace period."""
    node = NodeFolder(folder)
    if not node.pods.is_dir():
        return
    ended = asyncio.Event()
    with _locked(node):
        # No container is started here, so the shim program may be missing, for example after a full disk.
        containers = ShimClient(folder / shim_client.SHIM_PROGRAM, clock, lambda _: ended.set())
        runs = [path.parent for path in node.pods.glob("*/runs/*/*/spec.json")]
        for run in runs:
            containers.adopt(run)
            containers.stop(run, shim_client.run_grace_seconds(run))
        while any(not (state := containers.state(run)) or not state.has_ended for run in runs):
            await ended.wait()
            ended.clear()
        await containers.close()
        await asyncio.to_thread(_kill_strays, _identity(node), node)


@dataclass(frozen=True, slots=True)
class _Session:
    """The context, pod cache and task group that all workers of one `Kubelet.run` use."""

    context: NodeContext
    pods: Informer[Pod]
    group: asyncio.TaskGroup


def _needs_worker(pod: Pod) -> bool:
    """Whether a worker must act on the pod: a finished pod needs none until it is deleted."""
    return pod.metadata.is_being_deleted or not pod.is_finished


def _report(trouble: CacheError) -> None:
    _log.warning("the kubelet cannot follow the API", trouble=str(trouble))


def _report_end(recovery: CacheRecovery) -> None:
    _log.info("the kubelet follows the API again", over=str(recovery))


def _created(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def _identity(folder: NodeFolder) -> str:
    """The node's identity: random, created on the first start."""
    if folder.identity.exists() and (stored := folder.identity.read_text().strip()):
        return stored
    identity = secrets.token_hex(8)
    write_private_file(folder.identity, identity.encode())
    return identity


def _kill_strays(identity: str, folder: NodeFolder) -> None:
    """Kill container processes of this node whose run folder was removed."""
    running = shim_client.running_identities(f"{identity}.")
    # Processes are listed first: a container that starts meanwhile has its spec.json before it has a process.
    recorded = {shim_client.recorded_identity(path.parent) for path in folder.pods.glob("*/runs/*/*/spec.json")}
    for stray in running - recorded:
        shim_client.kill_marked(f"{shim.MARK_VARIABLE}={stray}".encode() + b"\0")


@contextlib.contextmanager
def _locked(folder: NodeFolder) -> Iterator[None]:
    descriptor = os.open(folder.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not try_lock(descriptor):
        os.close(descriptor)
        raise TarragonError(
            f"another kubelet already runs this node ({folder.path})",
            remedy="end it first, or give this one another --name",
        )
    try:
        yield
    finally:
        unlock(descriptor)
