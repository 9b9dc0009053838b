"""Builders of pods as a user writes them; a test sets only the fields that it is about."""

from __future__ import annotations

from typing import Any

from tarragon.kube.codec import decode, encode
from tarragon.localcluster.kubelet.base.spec import Container, Pod


def container_json(**fields: Any) -> dict[str, Any]:
    return {"name": "main", "image": "example/train:1", "command": ["true"], **fields}


def pod_json(name: str = "p", *containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A pod as the API server stores it after binding to node `n`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
        "spec": {"nodeName": "n", "containers": list(containers) or [container_json()], **spec},
    }


def pod(name: str = "p", *containers: dict[str, Any], **spec: Any) -> Pod:
    body = pod_json(name, *containers, **spec)
    body["metadata"].setdefault("uid", f"uid-of-{name}")
    return decode(encode(body), Pod)


def container(**fields: Any) -> Container:
    return decode(encode(container_json(**fields)), Container)
