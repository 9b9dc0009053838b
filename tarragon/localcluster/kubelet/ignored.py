"""What a pod asks for and a process node does not do, though the pod can run without: told once, in an event."""

from __future__ import annotations

from collections.abc import Iterator

from tarragon.localcluster.kubelet.spec import Container, Pod

_LASTING = ("persistentVolumeClaim", "hostPath")


def ignored(pod: Pod) -> list[str]:
    lasting = {volume["name"] for volume in pod.spec.volumes if any(volume.get(kind) is not None for kind in _LASTING)}
    return [words for container in pod.spec.all_containers for words in _of(container, lasting)]


def _of(container: Container, lasting: set[str]) -> Iterator[str]:
    probes = {
        "livenessProbe": container.liveness_probe,
        "readinessProbe": container.readiness_probe,
        "startupProbe": container.startup_probe,
        "lifecycle": container.lifecycle,
    }
    if named := [name for name, said in probes.items() if said]:
        yield f"container {container.name}: {', '.join(named)} is not carried out by a process node"
    if paths := [mount.mount_path for mount in container.volume_mounts if mount.read_only and mount.name in lasting]:
        yield f"container {container.name}: {', '.join(paths)} is not protected from writing (readOnly)"
