"""Lists the fields of a pod that a process node ignores although it runs the pod; reported once, in an event."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.localcluster.kubelet.base.spec import Container, Pod, PodSpec

_PERSISTENT = ("persistentVolumeClaim", "hostPath")
_IGNORED = (
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
"""Ignored fields of security contexts. A pod would not notice that allowPrivilegeEscalation is ignored too."""


def ignored_fields(pod: Pod, user: int | None = None) -> list[str]:
    """A sentence for each ignored field, for a node whose processes run as `user` (by default the current one)."""
    persistent = {
        volume["name"] for volume in pod.spec.volumes if any(volume.get(kind) is not None for kind in _PERSISTENT)
    }
    uid = os.getuid() if user is None else user
    return [
        *_of_pod(pod, uid),
        *(text for container in pod.spec.all_containers for text in _of_container(container, persistent)),
        *(text for each in pod.spec.all_containers for text in _security_context(f"container {each.name}", each, uid)),
    ]


def _of_pod(pod: Pod, user: int) -> Iterator[str]:
    fields = {
        "dnsConfig": _has_own_names(pod.spec.dns_config),
        "hostAliases": pod.spec.host_aliases,
        "hostPID": pod.spec.host_pid,
        "hostIPC": pod.spec.host_ipc,
        "shareProcessNamespace": pod.spec.share_process_namespace,
        "runtimeClassName": pod.spec.runtime_class_name,
    }
    if names := [name for name, value in fields.items() if value]:
        yield f"{', '.join(names)}: ignored, as processes share this machine"
    yield from _security_context("pod", pod.spec, user)


def _has_own_names(dns_config: Mapping[str, Any]) -> bool:
    """Whether a dnsConfig does more than shorten the names of Services, which processes find without it."""
    searches = dns_config.get("searches") or []
    return any(dns_config.get(name) for name in ("nameservers", "options")) or any(
        ".svc" not in str(domain) for domain in searches
    )


def _of_container(container: Container, persistent: set[str]) -> Iterator[str]:
    if paths := [mount.mount_path for mount in container.volume_mounts if mount.read_only and mount.name in persistent]:
        yield f"container {container.name}: {', '.join(paths)} is writable, as readOnly is ignored"
    probes = (container.startup_probe, container.readiness_probe, container.liveness_probe)
    if any(probe is not None and probe.grpc is not None for probe in probes):
        yield f"container {container.name}: a grpc probe only checks that its port accepts connections"
    if container.lifecycle is not None and container.lifecycle.stop_signal not in {"", "SIGTERM"}:
        yield f"container {container.name}: is stopped with SIGTERM, not with {container.lifecycle.stop_signal}"


def _security_context(subject: str, spec: Container | PodSpec, user: int) -> Iterator[str]:
    context: Mapping[str, Any] = spec.security_context
    if names := [name for name in _IGNORED if context.get(name)]:
        yield f"{subject}: {', '.join(names)} of its securityContext: ignored, as processes run with your permissions"
    requested = context.get("runAsUser")
    if requested is not None and requested != user:
        yield f"{subject}: runs as user {user}, who started this node, not as {requested} (runAsUser)"
    elif context.get("runAsNonRoot") and user == 0:
        yield f"{subject}: runs as root, who started this node, in spite of runAsNonRoot"
