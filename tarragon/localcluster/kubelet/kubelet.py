"""`Kubelet`: runs the pods that are bound to one node, as processes of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from tarragon.base.clock import Clock
from tarragon.base.errors import TarragonError
from tarragon.client.informer.cache_reader import Recovery, Trouble
from tarragon.client.informer.reflector import Cache
from tarragon.client.port import Cluster, Selection
from tarragon.kube.core import SERVICES, Service
from tarragon.kube.meta import Key
from tarragon.localcluster.home.home import write_private
from tarragon.localcluster.kubelet.base.files import try_lock, unlock
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import PODS_TO_RUN, Pod
from tarragon.localcluster.kubelet.devices.devices import offered
from tarragon.localcluster.kubelet.network.address_translation import Reach
from tarragon.localcluster.kubelet.network.ports import PortBook
from tarragon.localcluster.kubelet.network.service_links import ServiceLinks
from tarragon.localcluster.kubelet.node.node import NodeSettings, Registration
from tarragon.localcluster.kubelet.pod import records, stored_logs
from tarragon.localcluster.kubelet.pod.admission import Ledger
from tarragon.localcluster.kubelet.pod.checkpoint import RUBBISH, discard
from tarragon.localcluster.kubelet.pod.context import Ground
from tarragon.localcluster.kubelet.pod.launch import Launcher
from tarragon.localcluster.kubelet.pod.pod import SHUTDOWN, PodWorker
from tarragon.localcluster.kubelet.pod.pod_logs import NodeLogs
from tarragon.localcluster.kubelet.pod.recorder import Recorder
from tarragon.localcluster.kubelet.probes.handlers import LocalHandlers
from tarragon.localcluster.kubelet.resources.eviction_manager import Overuse
from tarragon.localcluster.kubelet.shim import shim, shim_client
from tarragon.localcluster.kubelet.shim.shim_client import Shims
from tarragon.localcluster.kubelet.volumes import mounts
from tarragon.localcluster.kubelet.volumes.refresh import VolumeKeeper
from tarragon.localcluster.kubelet.volumes.tokens import PodApi, TokenKeeper

UPKEEP_SECONDS = 12 * 3600.0
PRUNE_EVERY = 50
"""Pods removed between two looks at how many logs have gathered."""

_log = structlog.get_logger()


class Kubelet:
    """`run` does the work until it is cancelled or `stop` is called; containers outlive it, and the next one's `run`
    takes them up. `end_all` is for a node that is to be no more: it ends the containers, too.
    """

    def __init__(self, cluster: Cluster, node: NodeSettings, clock: Clock, pod_api: PodApi | None = None) -> None:
        self._cluster = cluster
        self._settings = node
        self._pod_api = pod_api
        self._clock = clock
        self._folder = NodeFolder(node.folder)
        self.recorder = Recorder(cluster, clock)
        self.registration = Registration(cluster, node, clock)
        self.overuse = Overuse(self._folder, clock, self.recorder.tell)
        self._workers: dict[str, PodWorker] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._uid_of: dict[Key, str] = {}
        self._removed = 0
        self._stopped = asyncio.Event()
        self._idle_ports = asyncio.Event()

    @property
    def logs(self) -> NodeLogs:
        """What `Api.pod_logs` wants: it can read also while the kubelet does not run."""
        return NodeLogs(self._folder, self._clock)

    def running(self) -> Mapping[str, Mapping[str, Path]]:
        """The folder of each run that goes on, by the pod's UID and the container's name."""
        return {uid: worker.running() for uid, worker in self._workers.items()}

    async def run(self) -> None:
        """Raises TarragonError when another kubelet runs in the node's folder, or ports cannot be claimed."""
        self._folder.prepare()
        with _locked(self._folder), contextlib.closing(self._port_book()) as ports:
            containers = Shims(shim_client.program_in(self._folder.path), self._clock, self._wake)
            try:
                await self._serve(ports, containers)
            finally:
                await containers.close()

    def stop(self) -> None:
        """Make `run` return. The containers go on running."""
        self._stopped.set()

    async def end_all(self) -> None:
        """End all containers, each with its pod's grace, while `run` runs; return when all pods are known to be ended.

        The pods are Failed then, with the reason that a node gives that is shut down.
        """
        workers = list(self._workers.values())
        for worker in workers:
            worker.end(SHUTDOWN)
        await asyncio.gather(*(worker.ended() for worker in workers))

    def _port_book(self) -> PortBook:
        return PortBook(self._folder.shared, self._settings.registry, self._clock)

    async def _serve(self, ports: PortBook, containers: Shims) -> None:
        jitter = random.Random()
        identity = _identity(self._folder)
        mine = Selection(fields=f"spec.nodeName={self._settings.name}")
        pods = Cache(self._cluster, PODS_TO_RUN, self._clock, mine, jitter=jitter)
        services = Cache(self._cluster, SERVICES, self._clock, jitter=jitter)
        reach = Reach(self._settings.name, ports, services.objects)
        ground = self._ground(identity, ports, containers, LocalHandlers(reach, self._clock))
        ground.launcher.links = ServiceLinks(services).variables
        for cache in (pods, services):
            cache.on_trouble(_report)
            cache.on_recovery(_report_end)
        async with asyncio.TaskGroup() as group:
            everything = [
                group.create_task(self.recorder.run()),
                group.create_task(self.registration.run()),
                group.create_task(self.overuse.run()),
                group.create_task(pods.run()),
                group.create_task(services.run()),
                group.create_task(self._tend_ports(ports, services)),
                group.create_task(self._renew_tokens()),
                group.create_task(self._keep_volumes(ground, pods)),
                group.create_task(self._follow(ground, pods, group)),
            ]
            await self._stopped.wait()
            for task in [*everything, *self._tasks.values()]:
                task.cancel()

    def _ground(self, identity: str, ports: PortBook, containers: Shims, handlers: LocalHandlers) -> Ground:
        settings = self._settings
        return Ground(
            cluster=self._cluster,
            clock=self._clock,
            settings=settings,
            identity=identity,
            folder=self._folder,
            shims=containers,
            ports=ports,
            ledger=Ledger(settings.capacity, settings.shared, offered(settings.capacity, settings.gpus)),
            launcher=Launcher(self._cluster, settings, self._folder, ports, self._pod_api),
            recorder=self.recorder,
            handlers=handlers,
        )

    async def _follow(self, ground: Ground, pods: Cache[Pod], group: asyncio.TaskGroup) -> None:
        """Pods that were here before come first: what they hold must be known before anybody new is admitted."""
        for rubbish in self._folder.pods.glob(f"{RUBBISH}*"):
            await asyncio.to_thread(mounts.remove, rubbish)
        await asyncio.to_thread(_end_strays, ground.identity, self._folder)
        await pods.synced()
        # From here to `subscribe` nothing is awaited: what changed in between would never be heard of.
        known = self._uids_on_the_disk()
        present = sorted(pods.objects.values(), key=lambda pod: (pod.metadata.uid not in known, _age(pod)))
        nursery = _Nursery(ground, pods, group)
        for pod in present:
            if pod.metadata.uid in known or _is_wanted(pod):
                self._begin(nursery, pod)
        for uid in known - {pod.metadata.uid for pod in present}:
            self._clean_up(nursery, uid)
        pods.subscribe(lambda _, old, new: self._changed(nursery, old, new))

    def _uids_on_the_disk(self) -> set[str]:
        return {path.name for path in self._folder.pods.iterdir() if not path.name.startswith(RUBBISH)}

    def _changed(self, nursery: _Nursery, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        if pod is None:
            return
        worker = self._workers.get(pod.metadata.uid)
        if worker is not None:
            if new is None:
                worker.vanish()
            else:
                worker.update(new)
        elif new is None:
            self._forget(nursery, pod)
        elif _is_wanted(new):
            self._begin(nursery, new)

    def _begin(self, nursery: _Nursery, pod: Pod) -> PodWorker:
        uid = pod.metadata.uid
        before = self._workers.get(self._uid_of.get(pod.metadata.key, ""))
        worker = PodWorker(nursery.ground, pod)
        self._workers[uid] = worker
        self._uid_of[pod.metadata.key] = uid
        self.overuse.begins(worker)
        task = nursery.group.create_task(worker.run(before), name=f"pod {pod.metadata.key}")
        self._tasks[uid] = task
        task.add_done_callback(lambda task: self._ended(nursery, worker, task))
        return worker

    def _clean_up(self, nursery: _Nursery, uid: str) -> None:
        """A pod that was deleted while no kubelet was here."""
        pod = records.load_manifest(self._folder.pod(uid))
        if pod is None or pod.metadata.uid != uid:
            discard(self._folder.pod(uid).path)  # nothing was ever started there
        else:
            self._begin(nursery, pod).vanish()

    def _forget(self, nursery: _Nursery, pod: Pod) -> None:
        """A finished pod that nobody cares for any more is gone."""
        if self._folder.pod(pod.metadata.uid).path.exists():
            self._begin(nursery, pod).vanish()

    def _ended(self, nursery: _Nursery, worker: PodWorker, task: asyncio.Task[None]) -> None:
        """What the API said of the pod in the worker's last moments must not be lost."""
        pod = worker.pod
        uid, key = pod.metadata.uid, pod.metadata.key
        self._workers.pop(uid, None)
        self.overuse.ends(worker)
        self._tasks.pop(uid, None)
        if self._uid_of.get(key) == uid:
            del self._uid_of[key]
        self._removed += 1
        self._idle_ports.set()
        if task.cancelled() or task.exception():
            return
        stored = nursery.pods.objects.get(key)
        if stored is None or stored.metadata.uid != uid:
            self._forget(nursery, pod)
        elif _is_wanted(stored):
            self._begin(nursery, stored)

    def _wake(self, run: Path) -> None:
        """A container has started or ended: `<node>/pods/<uid>/runs/<container>/<n>`."""
        if worker := self._workers.get(run.parents[2].name):
            worker.wake()

    async def _renew_tokens(self) -> None:
        if self._pod_api is not None:
            await TokenKeeper(self._pod_api.tokens, self._folder, self._clock).run(self._unfinished)

    async def _keep_volumes(self, ground: Ground, pods: Cache[Pod]) -> None:
        keeper = VolumeKeeper(self._cluster, self._clock, ground.launcher.refresh)
        pods.subscribe(keeper.changed)
        await keeper.run(self._unfinished)

    def _unfinished(self) -> list[Pod]:
        return [worker.pod for worker in self._workers.values() if not worker.pod.is_finished]

    async def _tend_ports(self, ports: PortBook, services: Cache[Service]) -> None:
        """Free ports whose Service is gone, when something goes; renew the claims now and then; bound the logs."""
        await services.synced()
        services.subscribe(lambda _key, _old, new: self._idle_ports.set() if new is None else None)
        alive = f"{self._settings.name}/"
        known = self._uids_on_the_disk()
        ports.keep_users(lambda user: not user.startswith(alive) or user.removeprefix(alive) in known)
        self._idle_ports.set()
        while True:
            ports.refresh()
            await asyncio.to_thread(stored_logs.prune, self._folder.logs)
            self._removed = 0
            due = self._clock.monotonic() + UPKEEP_SECONDS
            while self._removed < PRUNE_EVERY and self._clock.monotonic() < due:
                ports.free_idle(lambda namespace, name: Key(namespace, name) in services.objects)
                await self._until_something_goes(due)

    async def _until_something_goes(self, due: float) -> None:
        waiting = asyncio.ensure_future(self._idle_ports.wait())
        timer = asyncio.ensure_future(self._clock.sleep(due - self._clock.monotonic()))
        try:
            await asyncio.wait({waiting, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            timer.cancel()
        self._idle_ports.clear()


async def end_everything(folder: Path, clock: Clock) -> None:
    """End all containers of a node whose kubelet does not run, each with its own grace."""
    node = NodeFolder(folder)
    if not node.pods.is_dir():
        return
    ended = asyncio.Event()
    with _locked(node):
        # Nothing is started, so the program may be missing: a full disk could not take it.
        containers = Shims(folder / shim_client.PROGRAM, clock, lambda _: ended.set())
        runs = [path.parent for path in node.pods.glob("*/runs/*/*/spec.json")]
        for run in runs:
            containers.find(run)
            containers.stop(run, shim_client.grace_in(run))
        while any(not (state := containers.state(run)) or not state.has_ended for run in runs):
            await ended.wait()
            ended.clear()
        await containers.close()
        await asyncio.to_thread(_end_strays, _identity(node), node)


@dataclass(frozen=True, slots=True)
class _Nursery:
    """What workers are made from and live in."""

    ground: Ground
    pods: Cache[Pod]
    group: asyncio.TaskGroup


def _is_wanted(pod: Pod) -> bool:
    """Somebody must do something for it: a finished pod rests until it is deleted."""
    return pod.metadata.is_ending or not pod.is_finished


def _report(trouble: Trouble) -> None:
    _log.warning("the kubelet cannot follow the API", trouble=str(trouble))


def _report_end(recovery: Recovery) -> None:
    _log.info("the kubelet follows the API again", over=str(recovery))


def _age(pod: Pod) -> float:
    created = pod.metadata.creation_timestamp
    return created.timestamp() if created else 0.0


def _identity(folder: NodeFolder) -> str:
    """Drawn once for a node."""
    if folder.identity.exists() and (known := folder.identity.read_text().strip()):
        return known
    drawn = secrets.token_hex(8)
    write_private(folder.identity, drawn.encode())
    return drawn


def _end_strays(identity: str, folder: NodeFolder) -> None:
    """Processes of this node whose container it does not know: somebody has removed its folder."""
    found = shim_client.identities(f"{identity}.")
    # In this order: a container that is started meanwhile has its file before it has a process.
    known = {shim_client.identity_in(path.parent) for path in folder.pods.glob("*/runs/*/*/spec.json")}
    for stray in found - known:
        shim_client.end_marked(f"{shim.MARK}={stray}".encode() + b"\0")


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
