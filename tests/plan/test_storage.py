"""Where volumes let a pod run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tarragon.kube.core import Node, PersistentVolume, PersistentVolumeClaim, StorageClass
from tarragon.kube.meta import Key
from tarragon.plan.nodes.feasibility import template_nodes
from tarragon.plan.nodes.storage import VolumeCache, needs_kube_scheduler, volume_topologies

TEMPLATE = {
    "spec": {
        "containers": [{"name": "c"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    }
}
LOCAL = {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner"}
LAZY = "WaitForFirstConsumer"


def nodes(**zones: str) -> list[Node]:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    return [
        msgspec.convert({"metadata": {"name": name, "labels": {"zone": zone}}, "status": ready}, Node)
        for name, zone in zones.items()
    ]


def claim(*, volume: str = "", size: str = "5Gi") -> PersistentVolumeClaim:
    spec = {"storageClassName": "local", "volumeName": volume, "resources": {"requests": {"storage": size}}}
    written = {
        "metadata": {"name": "data", "namespace": "n1"},
        "spec": {**spec, "accessModes": ["ReadWriteOnce"]},
        "status": {"phase": "Bound" if volume else "Pending"},
    }
    return msgspec.convert(written, PersistentVolumeClaim)


def volume(name: str, zone: str, *, phase: str = "Available", **spec: Any) -> PersistentVolume:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    written = {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": "local",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            **spec,
        },
        "status": {"phase": phase},
    }
    return msgspec.convert(written, PersistentVolume)


def storage(found: PersistentVolumeClaim | None, *volumes: PersistentVolume, **kind: Any) -> VolumeCache:
    return VolumeCache(
        claims={} if found is None else {Key("n1", "data"): found},
        volumes={Key("", each.metadata.name): each for each in volumes},
        classes={Key("", "local"): msgspec.convert({**LOCAL, "volumeBindingMode": LAZY, **kind}, StorageClass)},
    )


def eligible(known: VolumeCache) -> frozenset[str]:
    return template_nodes(TEMPLATE, nodes(a="1", b="2", c="3"), volume_topologies(TEMPLATE, "n1", known)).eligible


def test_a_bound_claim_is_used_where_its_volume_is() -> None:
    known = storage(claim(volume="pv2"), volume("pv1", "1"), volume("pv2", "2", phase="Bound"))

    assert eligible(known) == {"b"}
    assert not needs_kube_scheduler(TEMPLATE, "n1", known)


def test_a_volume_that_we_may_not_read_forbids_nothing() -> None:
    assert eligible(storage(claim(volume="pv2"))) == {"a", "b", "c"}


def test_a_local_claim_that_waits_for_its_pod_can_be_bound_only_where_a_volume_is_free() -> None:
    known = storage(
        claim(),
        volume("free", "1"),
        volume("used", "2", phase="Bound"),
        volume("small", "3", capacity={"storage": "1Gi"}),
    )

    assert eligible(known) == {"a"}
    assert needs_kube_scheduler(TEMPLATE, "n1", known)


@pytest.mark.parametrize(
    "unfit", [{"storageClassName": "other"}, {"accessModes": ["ReadOnlyMany"]}, {"claimRef": {"name": "another"}}]
)
def test_volumes_of_another_kind_or_kept_for_another_do_not_count(unfit: dict[str, Any]) -> None:
    assert eligible(storage(claim(), volume("pv", "1", **unfit))) == frozenset()


def test_a_volume_kept_for_this_very_claim_counts() -> None:
    kept = volume("pv", "1", claimRef={"name": "data", "namespace": "n1"})

    assert eligible(storage(claim(), kept)) == {"a"}


def test_a_volume_is_provisioned_where_its_class_allows_it() -> None:
    allowed = [{"matchLabelExpressions": [{"key": "zone", "values": ["2", "3"]}]}]

    assert eligible(storage(claim(), provisioner="csi", allowedTopologies=allowed)) == {"b", "c"}
    assert eligible(storage(claim(), provisioner="csi")) == {"a", "b", "c"}


def test_a_claim_that_is_bound_at_once_is_left_to_kube_scheduler() -> None:
    known = storage(claim(), provisioner="csi", volumeBindingMode="Immediate")

    assert eligible(known) == {"a", "b", "c"}
    assert needs_kube_scheduler(TEMPLATE, "n1", known)


def test_a_claim_that_is_not_there_is_waited_for_by_kube_scheduler() -> None:
    assert needs_kube_scheduler(TEMPLATE, "n1", storage(None))


def test_a_claim_of_another_namespace_is_none_of_ours() -> None:
    assert needs_kube_scheduler(TEMPLATE, "n2", storage(claim(volume="pv2")))


def test_a_pod_without_claims_waits_for_nobody() -> None:
    template = {"spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]}}

    assert not needs_kube_scheduler(template, "n1", VolumeCache())


def test_what_only_kube_scheduler_can_know_is_left_to_it() -> None:
    by_label = {"topologyKey": "zone", "namespaceSelector": {"matchLabels": {"team": "a"}}}
    everywhere = {"topologyKey": "zone", "namespaceSelector": {}}

    def apart(term: Any) -> Any:
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        return {"spec": {"affinity": affinity}}

    assert needs_kube_scheduler({"spec": {"runtimeClassName": "nvidia"}}, "n", VolumeCache())
    assert needs_kube_scheduler(apart(by_label), "n", VolumeCache())
    assert not needs_kube_scheduler(apart(everywhere), "n", VolumeCache())
