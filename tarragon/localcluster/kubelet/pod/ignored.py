"""What a pod asks for and a process node does not do, though the pod can run without: told once, in an event."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.kubelet.base.spec import Container, Pod, PodSpec

_LASTING = ("persistentVolumeClaim", "hostPath")
_WITHOUT_EFFECT = (
    "privileged",
    "capabilities",
    "readOnlyRootFilesystem",
    "seccompProfile",
    "appArmorProfile",
    "seLinuxOptions",
    "fsGroup",
    "supplementalGroups",
    "sysctls",
)
"""Of security contexts. That nothing may gain rights (allowPrivilegeEscalation) is no wish that a pod would notice."""


def ignored(pod: Pod, user: int | None = None) -> list[str]:
    """In words, for a node whose processes run as this user."""
    lasting = {volume["name"] for volume in pod.spec.volumes if any(volume.get(kind) is not None for kind in _LASTING)}
    own = os.getuid() if user is None else user
    return [
        *_of_pod(pod, own),
        *(words for container in pod.spec.all_containers for words in _of(container, lasting)),
        *(words for each in pod.spec.all_containers for words in _secured(f"container {each.name}", each, own)),
    ]


def _of_pod(pod: Pod, user: int) -> Iterator[str]:
    said = {
        "dnsConfig": pod.spec.dns_config,
        "hostAliases": pod.spec.host_aliases,
        "hostPID": pod.spec.host_pid,
        "hostIPC": pod.spec.host_ipc,
        "shareProcessNamespace": pod.spec.share_process_namespace,
        "runtimeClassName": pod.spec.runtime_class_name,
    }
    if named := [name for name, value in said.items() if value]:
        yield f"{', '.join(named)}: processes share the machine as it is"
    yield from _secured("pod", pod.spec, user)


def _of(container: Container, lasting: set[str]) -> Iterator[str]:
    if paths := [mount.mount_path for mount in container.volume_mounts if mount.read_only and mount.name in lasting]:
        yield f"container {container.name}: {', '.join(paths)} is not protected from writing (readOnly)"
    if container.lifecycle is not None and container.lifecycle.stop_signal not in {"", "SIGTERM"}:
        yield f"container {container.name}: is ended by SIGTERM, not by {container.lifecycle.stop_signal}"


def _secured(whose: str, said: Container | PodSpec, user: int) -> Iterator[str]:
    context: Mapping[str, Any] = said.security_context
    if named := [name for name in _WITHOUT_EFFECT if context.get(name)]:
        yield f"{whose}: {', '.join(named)} of its securityContext: processes have your rights, no more and no less"
    wanted = context.get("runAsUser")
    if wanted is not None and wanted != user:
        yield f"{whose}: runs as user {user}, which is who started this node, not as {wanted} (runAsUser)"
    elif context.get("runAsNonRoot") and user == 0:
        yield f"{whose}: runs as root, which is who started this node, in spite of runAsNonRoot"
