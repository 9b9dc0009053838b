"""The objects that the pod workers of a node share."""

from __future__ import annotations

from dataclasses import dataclass

from tarragon.base.clock import Clock
from tarragon.client.port import Cluster
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.network.ports import PortBook
from tarragon.localcluster.kubelet.node.node import NodeSettings
from tarragon.localcluster.kubelet.pod.admission import Ledger
from tarragon.localcluster.kubelet.pod.launch import Launcher
from tarragon.localcluster.kubelet.pod.recorder import Recorder
from tarragon.localcluster.kubelet.probes.handlers import Handlers
from tarragon.localcluster.kubelet.shim.shim_client import Shims


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """The objects that all pods of a node share. `identity` is the node's prefix of container identities."""

    cluster: Cluster
    clock: Clock
    settings: NodeSettings
    identity: str
    folder: NodeFolder
    shims: Shims
    ports: PortBook
    ledger: Ledger
    launcher: Launcher
    recorder: Recorder
    handlers: Handlers
