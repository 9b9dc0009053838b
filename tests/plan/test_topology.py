from __future__ import annotations

from typing import Any

import msgspec

from tarragon.frameworks.kubeflow.fields import WORKER
from tarragon.frameworks.tensorflow.replica_types import PS
from tarragon.job.model import ReplicaType
from tarragon.kube.core import Node, Pod
from tarragon.kube.meta import OwnerIdentity
from tarragon.plan.nodes.feasibility import template_nodes
from tarragon.plan.nodes.pod_index import PodIndex
from tarragon.plan.nodes.replica_requests import pod_spec
from tarragon.plan.nodes.topology import NO_MATCHING_POD, FeasibleNodes, GangConstraints, NodeTopology, ReplicaTypePods
from tarragon.scheduling.api.snapshot import TopologyConstraint

Json = dict[str, Any]
ZONE, RACK = "zone", "rack"


def node(name: str, **labels: str) -> Node:
    return msgspec.convert(
        {"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}},
        Node,
    )


FOUR = [node("a1", zone="a"), node("a2", zone="a"), node("b1", zone="b"), node("bare")]


def pod(on: str, *, owner: str = "", ending: bool = False, phase: str = "Running", **labels: str) -> Pod:
    metadata: Json = {"name": f"p-{on}-{owner}-{'-'.join(labels.values())}", "namespace": "n", "labels": labels}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Job", "name": "j", "uid": owner, "controller": True}
        ]
    if ending:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return msgspec.convert(
        {"metadata": metadata, "spec": {"nodeName": on}, "status": {"phase": phase}}, Pod, strict=False
    )


def gang_owner(uid: str) -> OwnerIdentity:
    return OwnerIdentity(namespace="n", group="", kind="Job", name="j", uid=uid)


def with_affinity(found: Pod, affinity: Json) -> Pod:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, affinity=affinity))


def term(topology: str = ZONE, *, without: Json | None = None, **labels: str) -> Json:
    return {"topologyKey": topology, "labelSelector": {"matchLabels": labels}, **(without or {})}


def near(*terms: Json) -> Json:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Json) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def spread(topology: str = ZONE, skew: int = 1, *, labels: Json | None = None, **fields: Any) -> Json:
    selector = {"matchLabels": labels if labels is not None else {"app": "x"}}
    constraint = {"maxSkew": skew, "topologyKey": topology, "whenUnsatisfiable": "DoNotSchedule", **fields}
    return {"topologySpreadConstraints": [{"labelSelector": selector, **constraint}]}


def member(kind: ReplicaType = WORKER, *, affinity: Json | None = None, **more: Any) -> ReplicaTypePods:
    spec = {"affinity": affinity, **more} if affinity else more
    labels = {"app": "x", "type": kind.lower()}
    return ReplicaTypePods.of(kind, "n", labels, pod_spec({"spec": spec}))


def ties(
    *members: ReplicaTypePods, nodes: list[Node] | None = None, pods: list[Pod] | None = None
) -> dict[ReplicaType, FeasibleNodes]:
    sites = NodeTopology(FOUR if nodes is None else nodes)
    eligible = {
        one.type: template_nodes(msgspec.to_builtins({"spec": one.spec}), sites.nodes.values()).eligible
        for one in members
    }
    return GangConstraints(members, gang_owner("mine")).feasible_nodes(eligible, sites, PodIndex(pods or []))


def only(*members: ReplicaTypePods, nodes: list[Node] | None = None, pods: list[Pod] | None = None) -> FeasibleNodes:
    return ties(*members, nodes=nodes, pods=pods)[members[0].type]


def single(found: FeasibleNodes) -> TopologyConstraint:
    assert len(found.spreads) == 1
    return found.spreads[0]


def test_without_rules_between_pods_everything_stays_as_it_is() -> None:
    assert only(member(), pods=[pod("a1", app="x")]).eligible == frozenset({"a1", "a2", "b1", "bare"})


def test_whoever_is_to_be_near_others_goes_into_their_domains() -> None:
    found = only(member(affinity=near(term(role="cache"))), pods=[pod("a2", role="cache")])

    assert found.eligible == frozenset({"a1", "a2"})


def test_whoever_is_to_be_near_others_of_which_there_are_none_runs_nowhere() -> None:
    found = only(member(affinity=near(term(role="cache"))), pods=[pod("a2", role="cache", phase="Succeeded")])

    assert (found.eligible, found.narrowing_message) == (frozenset(), NO_MATCHING_POD)


def test_all_terms_of_an_affinity_are_about_the_same_pods() -> None:
    """A pod that one of them selects and another does not is nobody's company."""
    nodes = [node("a", zone="a", rack="1"), node("b", zone="b", rack="2")]
    both = near(term(role="cache"), term(RACK, tier="fast"))

    halves = [pod("a", role="cache"), pod("a", tier="fast")]
    assert only(member(affinity=both), nodes=nodes, pods=halves).eligible == frozenset()
    assert only(member(affinity=both), nodes=nodes, pods=[pod("b", role="cache", tier="fast")]).eligible == {"b"}


def test_a_gang_that_is_to_be_near_itself_starts_anywhere_in_one_domain() -> None:
    found = only(member(affinity=near(term(app="x"))))

    assert found.eligible == {"a1", "a2", "b1"}
    one = single(found)
    assert (one.in_one_domain, one.counted_types) == (True, frozenset({WORKER}))
    assert dict(one.domain_of) == {"a1": "a", "a2": "a", "b1": "b"}


def test_others_on_nodes_without_the_label_are_no_company() -> None:
    """As kube-scheduler has it: who is the first in any domain may begin where it wants."""
    found = only(member(affinity=near(term(app="x"))), pods=[pod("bare", owner="other", app="x")])

    assert found.eligible == {"a1", "a2", "b1"}
    assert single(found).in_one_domain


def test_a_gang_that_may_be_near_others_like_it_is_near_those_that_are_there() -> None:
    found = only(member(affinity=near(term(app="x"))), pods=[pod("b1", owner="other", app="x")])

    assert found.eligible == frozenset({"b1"})


def test_workers_that_are_to_be_near_their_parameter_servers_are_put_into_one_domain_with_them() -> None:
    found = ties(member(PS), member(affinity=near(term(type="ps"))))

    for kind in (PS, WORKER):
        one = single(found[kind])
        assert (one.in_one_domain, one.counted_types) == (True, frozenset({PS, WORKER}))


def test_whoever_keeps_off_others_stays_out_of_their_domains() -> None:
    found = only(member(affinity=apart(term(role="noisy"))), pods=[pod("a1", role="noisy"), pod("bare", role="noisy")])

    assert found.eligible == frozenset({"b1", "bare"})


def test_whom_others_keep_off_stays_out_of_their_domains_too() -> None:
    alone = with_affinity(pod("a1", role="proud"), apart(term(app="x")))

    assert only(member(), pods=[alone]).eligible == frozenset({"b1", "bare"})


def test_whom_others_keep_off_everywhere_is_told_so() -> None:
    several = [with_affinity(pod(name, role="proud"), apart(term("zone", app="x"))) for name in ("a1", "b1")]
    found = only(member(), nodes=FOUR[:3], pods=several)

    assert found.eligible == frozenset()
    assert found.narrowing_message == "affinity and spread rules between pods leave 0 of 3 nodes"


def test_replicas_that_keep_off_each_other_get_a_domain_each() -> None:
    one = single(only(member(affinity=apart(term(app="x", type="worker")))))

    assert (one.max_per_domain, one.counted_types) == (1, frozenset({WORKER}))
    assert dict(one.domain_of) == {"a1": "a", "a2": "a", "b1": "b", "bare": " bare"}


def test_jobs_whose_rules_amount_to_the_same_share_one_spread() -> None:
    """Ten thousand gangs, each with a rule that names itself, are decided about as one kind."""
    sites, others = NodeTopology(FOUR), PodIndex([])
    found = []
    for name in ("one", "two"):
        spec = pod_spec({"spec": {"affinity": apart(term(job=name))}})
        gang = GangConstraints([ReplicaTypePods.of(WORKER, "n", {"job": name}, spec)], gang_owner(name))
        found.append(gang.feasible_nodes({WORKER: frozenset(sites.nodes)}, sites, others)[WORKER])

    assert single(found[0]) is single(found[1])


def test_of_two_types_of_which_one_keeps_off_the_other_neither_gets_to_the_other() -> None:
    found = ties(member(PS), member(affinity=apart(term(type="ps"))))

    of_worker, of_server = single(found[WORKER]), single(found[PS])
    assert (of_worker.max_per_domain, of_worker.counted_types) == (0, frozenset({PS}))
    assert (of_server.max_per_domain, of_server.counted_types) == (0, frozenset({WORKER}))


def test_a_spread_counts_the_gang_s_own_and_the_others_that_are_not_ending() -> None:
    pods = [
        pod("a1", owner="other", app="x"),
        pod("a2", owner="mine", app="x"),
        pod("b1", owner="third", app="x", ending=True),
        pod("bare", app="x"),
    ]
    one = single(ties(member(PS), member(**spread()), pods=pods)[WORKER])

    assert (one.max_skew, one.max_per_domain, one.counted_types) == (1, None, frozenset({PS, WORKER}))
    assert dict(one.domain_of) == {"a1": "a", "a2": "a", "b1": "b"}
    assert one.existing_pods == {"a": 1}


def test_a_spread_counts_the_nodes_that_the_pod_wants_only() -> None:
    nodes = [node("a", zone="a", disk="ssd"), node("b", zone="b")]

    wanted = single(only(member(**spread(), nodeSelector={"disk": "ssd"}), nodes=nodes))
    ignoring = spread(nodeAffinityPolicy="Ignore")
    every = single(only(member(**ignoring, nodeSelector={"disk": "ssd"}), nodes=nodes))

    assert dict(wanted.domain_of) == {"a": "a"}
    assert dict(every.domain_of) == {"a": "a", "b": "b"}


def test_a_spread_may_leave_out_nodes_whose_taints_the_pod_does_not_tolerate() -> None:
    tainted = msgspec.structs.replace(
        node("b", zone="b"),
        spec=msgspec.convert({"taints": [{"key": "k", "effect": "NoSchedule"}]}, type(FOUR[0].spec)),
    )
    nodes = [node("a", zone="a"), tainted]

    assert dict(single(only(member(**spread()), nodes=nodes)).domain_of) == {"a": "a", "b": "b"}
    assert dict(single(only(member(**spread(nodeTaintsPolicy="Honor")), nodes=nodes)).domain_of) == {"a": "a"}


def test_with_fewer_domains_than_it_wants_a_spread_counts_as_if_an_empty_one_were_there() -> None:
    few = single(only(member(**spread(skew=2, minDomains=3))))
    enough = single(only(member(**spread(skew=2, minDomains=2))))

    assert (few.max_skew, few.max_per_domain) == (None, 2)
    assert (enough.max_skew, enough.max_per_domain) == (2, None)


def test_match_label_keys_narrow_whom_a_spread_counts() -> None:
    pods = [pod("a1", app="x", type="ps"), pod("b1", app="x", type="worker")]
    one = single(only(member(**spread(matchLabelKeys=["type"])), pods=pods))

    assert one.existing_pods == {"b": 1}


def test_a_spread_with_an_empty_selector_counts_no_pods() -> None:
    empty = only(member(**spread(labels={})), pods=[pod("a1", app="x")])
    narrowed = only(member(**spread(labels={}, matchLabelKeys=["app"])), pods=[pod("a1", app="x")])

    assert (single(empty).existing_pods, single(empty).counted_types) == ({}, frozenset())
    assert (single(narrowed).existing_pods, single(narrowed).counted_types) == ({"a": 1}, frozenset({WORKER}))


def test_a_selector_that_is_missing_selects_nobody_and_an_empty_one_everybody() -> None:
    nobody = {"topologyKey": ZONE}
    everybody = {"topologyKey": ZONE, "labelSelector": {}}
    pods = [pod("a1", some="pod")]

    assert only(member(affinity=apart(nobody)), pods=pods).eligible == {"a1", "a2", "b1", "bare"}
    assert only(member(affinity=apart(everybody)), pods=pods).eligible == {"b1", "bare"}


def test_rules_are_about_the_own_namespace_unless_they_name_others() -> None:
    stranger = msgspec.structs.replace(
        pod("a1", role="noisy"), metadata=msgspec.structs.replace(pod("a1", role="noisy").metadata, namespace="other")
    )

    def eligible(**more: Any) -> frozenset[str]:
        return only(member(affinity=apart(term(role="noisy", without=more))), pods=[stranger]).eligible

    by_name = {"matchLabels": {"kubernetes.io/metadata.name": "other"}}
    assert "a1" in eligible()
    assert "a1" not in eligible(namespaces=["other"])
    assert "a1" not in eligible(namespaceSelector={})
    assert "a1" not in eligible(namespaceSelector=by_name)
    assert "a1" in eligible(namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "third"}})


def test_rules_that_no_api_server_takes_are_none() -> None:
    odd = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": "all"}}

    assert only(member(affinity=odd)).eligible == frozenset({"a1", "a2", "b1", "bare"})
