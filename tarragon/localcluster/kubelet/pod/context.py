"""The objects that the pod workers of a node share."""

from __future__ import annotations

from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.client.port import Client
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.network.ports import PortAllocator
from tarragon.localcluster.kubelet.node.node import NodeRegistration, NodeSettings
from tarragon.localcluster.kubelet.pod.admission import NodeAllocations
from tarragon.localcluster.kubelet.pod.launch import Launcher
from tarragon.localcluster.kubelet.pod.recorder import PodEventRecorder
from tarragon.localcluster.kubelet.probes.handlers import ActionRunner
from tarragon.localcluster.kubelet.rsh.hosts import HostNames
from tarragon.localcluster.kubelet.shim.shim_client import ShimClient


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """The objects that all pods of a node share. `identity` is the node's prefix of container identities."""

    cluster: Client
    clock: Clock
    settings: NodeSettings
    registration: NodeRegistration
    identity: str
    folder: NodeFolder
    shims: ShimClient
    ports: PortAllocator
    ledger: NodeAllocations
    launcher: Launcher
    recorder: PodEventRecorder
    handlers: ActionRunner
    host_names: HostNames
