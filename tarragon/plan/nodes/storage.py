"""Which nodes a pod's volumes allow, and whether kube-scheduler has to bind some of them first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.quantity import parse_milli
from tarragon.kube.core import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.scheduling.affinity_terms import selects_namespaces_by_label
from tarragon.kube.scheduling.node_affinity import matches_node_selector

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeCache:
    """The cached volumes, claims and storage classes. Kinds that the operator may not read are empty."""

    claims: Mapping[Key, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[Key, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[Key, StorageClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class VolumeTopology:
    """The nodes on which one claim can be used: those that at least one selector matches; None matches all."""

    selectors: Sequence[JsonObject | None]

    def matches(self, node: Node) -> bool:
        return any(selector is None or matches_node_selector(selector, node) for selector in self.selectors)


def needs_kube_scheduler(template: JsonObject, namespace: str, storage: VolumeCache) -> bool:
    """Whether kube-scheduler has to bind the pod, so that it can't be created with nodeName.

    That is so for pods with:

    - claims that are unbound or unknown, ephemeral volumes, or resource claims of jobs that have nodes, because they
      had none when they were admitted: kube-scheduler binds them;
    - scheduling gates: the API server rejects a pod with both a gate and a node;
    - a runtime class: it may add a node selector and overhead that are not in the template;
    - required (anti-)affinity that selects namespaces by other labels than their name.
    """
    spec = template.get("spec", {})
    if spec.get("resourceClaims") or spec.get("schedulingGates") or spec.get("runtimeClassName"):
        return True
    if spec.get("affinity") and selects_namespaces_by_label(spec["affinity"]):
        return True
    if any("ephemeral" in volume for volume in spec.get("volumes", [])):
        return True
    found = (storage.claims.get(Key(namespace, name)) for name in claim_names(template))
    return any(claim is None or not claim.is_bound for claim in found)


def claim_names(template: JsonObject) -> Iterator[str]:
    """Yield the names of the claims that all pods of the template share."""
    for volume in template.get("spec", {}).get("volumes", []):
        name = volume.get("persistentVolumeClaim", {}).get("claimName")
        if name:
            yield name


def volume_topologies(template: JsonObject, namespace: str, storage: VolumeCache) -> Sequence[VolumeTopology]:
    """Return where the claims of a template can be used; a node must be included in all of them."""
    claims = (storage.claims.get(Key(namespace, name)) for name in claim_names(template))
    return [reach for claim in claims if claim is not None and (reach := _reach(claim, storage)) is not None]


def _reach(claim: PersistentVolumeClaim, storage: VolumeCache) -> VolumeTopology | None:
    """Return where the claim can be used; None if no node is known to be excluded."""
    if claim.is_bound:
        volume = storage.volumes.get(Key("", claim.spec.volume_name))
        return None if volume is None else VolumeTopology([_selector(volume)])
    storage_class = storage.classes.get(Key("", claim.spec.storage_class_name))
    if storage_class is None or storage_class.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        return None
    if storage_class.provisioner == NO_PROVISIONER:
        return VolumeTopology([_selector(volume) for volume in storage.volumes.values() if can_bind(volume, claim)])
    return (
        VolumeTopology([_topology_selector(storage_class.allowed_topologies)])
        if storage_class.allowed_topologies
        else None
    )


def _selector(volume: PersistentVolume) -> JsonObject | None:
    required = volume.spec.node_affinity.required
    return required if isinstance(required, Mapping) else None


def can_bind(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume may be bound to the claim, by the checks that limit nodes; kube-scheduler does the others."""
    owner = volume.spec.claim_ref
    is_free = volume.status.phase == "Available" and (owner is None or owner.key == claim.metadata.key)
    return (
        is_free
        and volume.spec.storage_class_name == claim.spec.storage_class_name
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and _storage_size(volume.spec.capacity) >= _storage_size(claim.spec.resources.requests)
    )


def _storage_size(amounts: Mapping[str, str | int | float]) -> int:
    try:
        return parse_milli(amounts.get("storage", 0))
    except ValueError:
        return 0


def _topology_selector(terms: Sequence[Json]) -> JsonObject:
    """Return a storage class's allowed topologies as a node selector."""
    return {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": each.get("key"), "operator": "In", "values": each.get("values", [])}
                    for each in term.get("matchLabelExpressions", [])
                ]
            }
            for term in terms
        ]
    }
