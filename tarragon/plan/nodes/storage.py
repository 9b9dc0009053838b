"""Where a pod's volumes let it run, and whether kube-scheduler has to bind some of them first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tarragon.base.quantity import milli
from tarragon.kube.core import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.plan.nodes.affinity_terms import asks_unknown_namespaces
from tarragon.plan.nodes.predicates import is_selected

NOT_PROVISIONED = "kubernetes.io/no-provisioner"
FIRST_CONSUMER = "WaitForFirstConsumer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """What is known of volumes. Kinds that we may not read are empty."""

    claims: Mapping[Key, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[Key, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[Key, StorageClass] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that one claim can be used on: any that one of the node selectors selects; None selects all."""

    selectors: Sequence[JsonObject | None]

    def includes(self, node: Node) -> bool:
        return any(selector is None or is_selected(selector, node) for selector in self.selectors)


def waits_for_a_scheduler(template: JsonObject, namespace: str, storage: Storage) -> bool:
    """Whether something of the pod is bound only when kube-scheduler binds the pod: such a pod can't name its node.

    A claim that we don't know is such a case, as kube-scheduler is never wrong about it; a gate, which somebody else
    opens: the API refuses a pod that has both a gate and a node; a class of runtimes, which may ask for nodes and
    overhead that are not in the template; and rules between pods that depend on labels of namespaces.
    """
    spec = template.get("spec", {})
    if spec.get("resourceClaims") or spec.get("schedulingGates") or spec.get("runtimeClassName"):
        return True
    if spec.get("affinity") and asks_unknown_namespaces(spec["affinity"]):
        return True
    if any("ephemeral" in volume for volume in spec.get("volumes", [])):
        return True
    found = (storage.claims.get(Key(namespace, name)) for name in claim_names(template))
    return any(claim is None or not claim.is_bound for claim in found)


def claim_names(template: JsonObject) -> Iterator[str]:
    """Of the claims that the template's pods share."""
    for volume in template.get("spec", {}).get("volumes", []):
        name = volume.get("persistentVolumeClaim", {}).get("claimName")
        if name:
            yield name


def reaches(template: JsonObject, namespace: str, storage: Storage) -> Sequence[Reach]:
    """A node has to be within all of them."""
    claims = (storage.claims.get(Key(namespace, name)) for name in claim_names(template))
    return [reach for claim in claims if claim is not None and (reach := _reach(claim, storage)) is not None]


def _reach(claim: PersistentVolumeClaim, storage: Storage) -> Reach | None:
    """None when nothing is known that would forbid a node."""
    if claim.is_bound:
        volume = storage.volumes.get(Key("", claim.spec.volume_name))
        return None if volume is None else Reach([_selector(volume)])
    kind = storage.classes.get(Key("", claim.spec.storage_class_name))
    if kind is None or kind.volume_binding_mode != FIRST_CONSUMER:
        return None
    if kind.provisioner == NOT_PROVISIONED:
        return Reach([_selector(volume) for volume in storage.volumes.values() if _serves(volume, claim)])
    return Reach([_of_topologies(kind.allowed_topologies)]) if kind.allowed_topologies else None


def _selector(volume: PersistentVolume) -> JsonObject | None:
    required = volume.spec.node_affinity.required
    return required if isinstance(required, Mapping) else None


def _serves(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """As far as it matters for the place: kube-scheduler looks at the rest."""
    owner = volume.spec.claim_ref
    is_free = volume.status.phase == "Available" and (owner is None or owner.key == claim.metadata.key)
    return (
        is_free
        and volume.spec.storage_class_name == claim.spec.storage_class_name
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
        and _size(volume.spec.capacity) >= _size(claim.spec.resources.requests)
    )


def _size(amounts: Mapping[str, str | int | float]) -> int:
    try:
        return milli(amounts.get("storage", 0))
    except ValueError:
        return 0


def _of_topologies(terms: Sequence[Json]) -> JsonObject:
    """A class's allowed topologies, written as the node selector that they amount to."""
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
