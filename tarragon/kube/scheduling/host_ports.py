"""Host ports of pods as resources, of which each node has one per port number and protocol.

Unlike kube-scheduler, `hostIP` is ignored: two pods never share a port number of a node.
"""

from __future__ import annotations

from tarragon.kube.core import PodSpec

ONE_PORT = 1000
HOST_PORT_PREFIX = "host-port:"
"""The prefix of the name of such a resource."""


def host_ports(spec: PodSpec) -> dict[str, int]:
    """Return the host ports of a pod. On the host network all container ports count. Each port counts once per pod."""
    sidecars = (container for container in spec.init_containers if container.is_sidecar)
    return {
        name: amount
        for container in (*spec.containers, *sidecars)
        for port in container.ports
        for number in [port.host_port or (port.container_port if spec.host_network else 0)]
        if number
        for name, amount in host_port(number, port.protocol).items()
    }


def host_port(number: int, protocol: str) -> dict[str, int]:
    return {f"{HOST_PORT_PREFIX}{number}" if protocol == "TCP" else f"{HOST_PORT_PREFIX}{number}:{protocol}": ONE_PORT}
