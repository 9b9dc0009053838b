"""The anchor pods by node, and which GPU a new pod may share.

The reconciler creates a pod with a GPU of which `shared_gpu` says that an anchor holds it, and asks `is_current` at the
moment of the request; from then on the pod is assumed, and the anchor is needed. Who needs one is asked at the moment
of a request to delete it. All of this happens in one event loop, and nothing comes between a question and what follows
from its answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tarragon.base.quantity import format_bytes, format_decimal
from tarragon.base.resources import WHOLE_GPU
from tarragon.client.informer.cache_reader import CacheReader, KeyIndex
from tarragon.job.places import describe_place, node_of, vgpu_of
from tarragon.kube.codec import decode, encode
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import Json, Key
from tarragon.kube.scheduling.gpu_shares import GPU_UUID_ANNOTATION, GpuShare, gpu_memory, share_of_pod
from tarragon.kube.scheduling.node_gpu_sharing import GpuSharing, gpu_sharing, mps_pipe_directory
from tarragon.operator.informers.candidates import JobId
from tarragon.operator.informers.vgpu_users import VgpuUsers
from tarragon.plan.lifecycle.gpu_anchors import Anchor, AnchorNeeds, anchor_wait, usable_anchors
from tarragon.plan.objects.gpu_anchors import anchor_name, anchor_place
from tarragon.plan.objects.placement import assigned_place
from tarragon.plan.objects.vgpus import GpuWait, SharedGpu


class GpuAnchors:
    """The anchors of one namespace. Without a namespace there are none, and only kubelets share GPUs."""

    def __init__(self, namespace: str, pods: CacheReader[Pod], nodes: CacheReader[Node], users: VgpuUsers) -> None:
        self._namespace = namespace
        self._pods = pods
        self._nodes = nodes
        self._users = users
        self._anchors = KeyIndex(pods, lambda pod: map(node_of, self._places_of(pod)))
        self._problems: dict[str, GpuWait] = {}
        self._found: dict[str, SharedGpu | GpuWait | None] = {}
        """What was found by place, until something changes."""
        self._change_handlers: list[Callable[[], None]] = []
        self._job_handlers: list[Callable[[JobId], None]] = []
        users.on_change(self._changed)
        pods.add_event_handler(self._pod_changed)
        nodes.add_event_handler(self._node_changed)

    def on_change(self, handler: Callable[[], None]) -> None:
        """Call `handler` when the anchors, or who needs them, may have changed."""
        self._change_handlers.append(handler)

    def on_job_change(self, handler: Callable[[JobId], None]) -> None:
        """Call `handler` with each job with a replica at a place of which the anchor has changed."""
        self._job_handlers.append(handler)

    # ---------------------------------------------------------------------------------------------- for the reconciler

    def shared_gpu(self, place: str) -> SharedGpu | GpuWait | None:
        """The GPU that a new pod at the place may share, or why there is none yet; None if its kubelet finds it."""
        if place not in self._found:
            self._found[place] = self._find(place)
        return self._found[place]

    def is_current(self, body: Mapping[str, Json]) -> bool:
        """Whether the object that is about to be created names no GPU, or one that it may share."""
        named = body["metadata"].get("annotations", {}).get(GPU_UUID_ANNOTATION)
        if named is None:
            return True
        pod = decode(encode(body), Pod)
        place, share = assigned_place(pod), share_of_pod(pod)
        found = self.shared_gpu(place) if vgpu_of(place) is not None else None
        return (
            isinstance(found, SharedGpu)
            and found.uuid == named
            and not (share is not None and self.shortage(pod.metadata.key, place, share))
        )

    def shortage(self, pod: Key, place: str, share: GpuShare) -> str:
        """What the GPU of a place lacks for a pod with this share; empty if nothing. Where an anchor holds the GPU, no
        kubelet looks after that, and a job's template may request more than when it was placed.
        """
        node = self.node_at(place)
        if node is None or gpu_sharing(node) is not GpuSharing.ANCHOR:
            return ""
        held, memory = self._users.shares_at(place, without=pod), gpu_memory(node.metadata.labels)
        left = WHOLE_GPU - sum(each.request for each in held)
        memory_left = memory - sum(_memory(each, memory) for each in held)
        if share.request > left:
            needed = format_decimal(share.request)
            return f"{describe_place(place)} has {format_decimal(max(0, left))} left, and {needed} is needed"
        if _memory(share, memory) > memory_left:
            needed, rest = format_bytes(_memory(share, memory) * 1000), format_bytes(max(0, memory_left) * 1000)
            return f"{describe_place(place)} has {rest} of memory left, and {needed} is needed"
        return ""

    def _find(self, place: str) -> SharedGpu | GpuWait | None:
        node = self._nodes.objects.get(Key("", node_of(place)))
        if node is None:
            return GpuWait(message=f"node {node_of(place)} is gone")
        method = gpu_sharing(node)
        if method is GpuSharing.KUBELET:
            return None
        if method is not GpuSharing.ANCHOR or not self._namespace:
            return GpuWait(message=f"the GPUs of node {node_of(place)} are not shared", is_problem=True)
        anchors = self._anchors_on(node_of(place))
        in_use = {anchor.place: self._users.gpus_at(anchor.place) for anchor in anchors}
        anchor = usable_anchors(anchors, in_use)[0].get(place)
        if anchor is None or not anchor.gpu or anchor.is_closing:
            return self._wait(place, anchors)
        others = sorted(in_use[place] - {anchor.gpu})
        if others:
            lost = f"{describe_place(place)} has lost its GPU {others[0]}, which pods still use"
            return GpuWait(message=f"{lost}; others can start there when these have ended", is_problem=True)
        return SharedGpu(uuid=anchor.gpu, memory=gpu_memory(node.metadata.labels), mps_pipes=mps_pipe_directory(node))

    def _wait(self, place: str, anchors: Iterable[Anchor]) -> GpuWait:
        if place in self._problems:
            return self._problems[place]
        # Of several, all but the one with this name are about to go.
        name = anchor_name(place)
        anchor = next((each for each in anchors if each.place == place and each.key.name == name), None)
        return anchor_wait(place, None if anchor is None else self._pods.objects[anchor.key])

    # -------------------------------------------------------------------------------------- for the anchors' controller

    def anchors(self) -> list[Anchor]:
        """All anchors."""
        return [anchor for node in self._anchors.values() for anchor in self._anchors_on(node)]

    def needs(self) -> AnchorNeeds:
        """Who needs an anchor now. An admission that is yet to be verified keeps one, but gets none."""
        in_use = self._users.gpus_in_use()
        kept = in_use.keys() | self._users.assigned_places()
        with_anchor = {anchor.place for anchor in self.anchors()}
        return AnchorNeeds(
            nodes={node for node in map(node_of, kept | with_anchor) if Key("", node) in self._nodes.objects},
            kept=kept,
            wanted={
                place
                for place in kept - with_anchor
                if self._is_held_by_anchor(place) and (place in in_use or self._users.has_accepted_job(place))
            },
            gpus_in_use=in_use,
        )

    def pod_of(self, anchor: Anchor) -> Pod | None:
        """The pod of an anchor; None if it is gone."""
        pod = self._pods.objects.get(anchor.key)
        return pod if pod is not None and pod.metadata.uid == anchor.uid else None

    def node_at(self, place: str) -> Node | None:
        return self._nodes.objects.get(Key("", node_of(place)))

    def report_problem(self, place: str, problem: GpuWait | None) -> None:
        """Say what is wrong with a place's anchor, or that nothing is."""
        if self._problems.get(place) == problem:
            return
        if problem is None:
            del self._problems[place]
        else:
            self._problems[place] = problem
        self._found.clear()
        self._notify_jobs(place)

    @property
    def problems(self) -> Mapping[str, GpuWait]:
        """What is wrong, by place."""
        return self._problems

    # ---------------------------------------------------------------------------------------------- indexes and changes

    def _places_of(self, pod: Pod) -> Collection[str]:
        place = anchor_place(pod, self._namespace)
        return () if place is None else (place,)

    def _anchors_on(self, node: str) -> list[Anchor]:
        pods = (self._pods.objects[key] for key in self._anchors.keys(node))
        return [Anchor.of(pod, place) for pod in pods for place in self._places_of(pod)]

    def _is_held_by_anchor(self, place: str) -> bool:
        node = self.node_at(place)
        return node is not None and gpu_sharing(node) is GpuSharing.ANCHOR

    def _pod_changed(self, _: Key, old: Pod | None, new: Pod | None) -> None:
        places = {place for pod in (old, new) if pod is not None for place in self._places_of(pod)}
        if places:
            self._changed()
        for place in places:
            self._notify_jobs(place)

    def _node_changed(self, _: Key, old: Node | None, new: Node | None) -> None:
        if _traits(old) != _traits(new):
            self._changed()

    def _changed(self) -> None:
        self._found.clear()
        for handler in self._change_handlers:
            handler()

    def _notify_jobs(self, place: str) -> None:
        for job in self._users.jobs_at(place):
            for handler in self._job_handlers:
                handler(job)


def _memory(share: GpuShare, gpu_memory: int) -> int:
    """Return the bytes that a share takes of a GPU with this much memory."""
    return gpu_memory * share.request // WHOLE_GPU if share.memory is None else share.memory


def _traits(node: Node | None) -> object:
    if node is None:
        return None
    return gpu_sharing(node), gpu_memory(node.metadata.labels), mps_pipe_directory(node)
