"""What an installation, and then its removal, leaves in a cluster."""

from __future__ import annotations

from collections.abc import Sequence

from tarragon.frameworks.registry import FRAMEWORKS
from tests.deploy.helm_program import NAMESPACE

CRDS = frozenset(f"CustomResourceDefinition {framework.resource.full_name}" for framework in FRAMEWORKS)
LEFT_IN_THE_NAMESPACE = frozenset(
    {
        *("Lease tarragon", "ConfigMap tarragon-rules", "ConfigMap tarragon-shares"),
        "Secret tarragon-progress",
    }
)
LEFT_BY_HELM = frozenset({*CRDS, *(f"{NAMESPACE} {name}" for name in LEFT_IN_THE_NAMESPACE), f"Namespace {NAMESPACE}"})
"""What `helm uninstall` leaves besides jobs, as docs/helm.md says."""
KINDS = ("api-resources", "--verbs=list", "-o", "name")
"""Asks kubectl for the kinds of objects that there are."""


def listing(kinds: str) -> Sequence[str]:
    """Asks kubectl for all objects, given its answer to KINDS."""
    columns = "custom-columns=NAMESPACE:.metadata.namespace,KIND:.kind,NAME:.metadata.name"
    return ("get", ",".join(kinds.split()), "-A", "--no-headers", "-o", columns)


def listed_objects(listed: str) -> set[str]:
    """Every object, but for those of jobs, of the node, and what Kubernetes makes by itself in each namespace."""
    found = [line.split()[:3] for line in listed.splitlines() if len(line.split()) > 2]
    return {
        f"{namespace} {kind} {name}".removeprefix("<none> ")
        for namespace, kind, name in found
        if namespace not in {"default", "kube-node-lease"}
        and kind not in {"APIService", "Event", "IPAddress", "Node"}
        and (kind, name) not in {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
        and not (kind == "Secret" and name.startswith("default-token-"))  # of that account, on old versions
    }
