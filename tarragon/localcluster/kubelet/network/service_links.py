"""Service environment variables: the Services of a container's namespace at its start."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.client.informer.cache_reader import KeyIndex
from tarragon.client.informer.informer import Informer
from tarragon.kube.core import Service
from tarragon.localcluster.kubelet.base.spec import Pod


async def no_links(_: Pod) -> dict[str, str]:
    return {}


class ServiceLinks:
    """The service variables of pods. Services without a cluster IP are skipped; a namespace may have thousands."""

    def __init__(self, services: Informer[Service]) -> None:
        self._services = services
        self._in_namespace = KeyIndex(services, _namespaces)

    async def variables(self, pod: Pod) -> dict[str, str]:
        """The variables for a pod; empty when it disables service links."""
        if not pod.spec.enable_service_links:
            return {}
        await self._services.wait_for_sync()
        keys = sorted(self._in_namespace.keys(pod.metadata.namespace))
        return {name: value for key in keys for name, value in _variables(self._services.objects[key])}


def _namespaces(service: Service) -> list[str]:
    has_address = service.spec.cluster_ip not in {"", "None"} and service.spec.ports
    return [service.metadata.namespace] if has_address else []


def _variables(service: Service) -> Iterator[tuple[str, str]]:
    """The variables of one Service: Kubernetes' names, and Docker's names of linked containers."""
    variable, address = service.metadata.name.upper().replace("-", "_"), service.spec.cluster_ip
    first = service.spec.ports[0].port
    yield f"{variable}_SERVICE_HOST", address
    yield f"{variable}_SERVICE_PORT", str(first)
    for port in service.spec.ports:
        if port.name:
            yield f"{variable}_SERVICE_PORT_{port.name.upper().replace('-', '_')}", str(port.port)
    yield f"{variable}_PORT", f"tcp://{address}:{first}"
    for port in service.spec.ports:
        prefix = f"{variable}_PORT_{port.port}_TCP"
        yield prefix, f"tcp://{address}:{port.port}"
        yield f"{prefix}_PROTO", "tcp"
        yield f"{prefix}_PORT", str(port.port)
        yield f"{prefix}_ADDR", address
