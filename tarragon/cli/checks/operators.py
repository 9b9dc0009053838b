"""Checks which operators are active in a cluster: Tarragon's, by its Lease, and other training operators. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import count, duration_text, joined
from tarragon.client.leader_election import Lease
from tarragon.kube.codec import parse_time
from tarragon.operator.coexistence.detection import LOCK_EXPIRY_SECONDS, ClusterState, detect_operators

_INSTALL = "install it with kubectl apply -k deploy, or run `tarragon operator` on this machine"
_UNSEEN = f"{_INSTALL}; if it is, and does not run, its administrator can see why: you may not list Deployments"
_LABEL = "app.kubernetes.io/name"
_TWO_LEADERS = "if they manage the same namespaces, both are leaders: stop one, or share a Lease with --lease-namespace"


def check_operators(leases: Sequence[Lease] | None, others: ClusterState, now: dt.datetime) -> Iterator[Finding]:
    """Report Tarragon's operator and the others. A Lease renewed within a minute is fresh: clocks may differ.

    `leases` are Tarragon's, None if this user may not read them.
    """
    found = detect_operators(others, ClusterState(), now)
    own = _own_operator(leases, now, has_rival=bool(found))
    yield _stopped_operator(own, others) if own.level == "error" else own
    for rival in found:
        text = f"{rival} is running: Tarragon's operator leaves {' and '.join(sorted(rival.kinds))} to it"
        remedy = f"scale it to 0 to let Tarragon manage them: kubectl get deployments -A | grep {rival.program}"
        yield Finding("warning", "others", text, remedy)
    if not found:
        unseen = f"; you may not list {', '.join(others.unreadable)}" if others.unreadable else ""
        yield Finding("ok", "others", f"no other training operator found{unseen}")


def _own_operator(leases: Sequence[Lease] | None, now: dt.datetime, *, has_rival: bool) -> Finding:
    if leases is None:
        return Finding("ok", "operator", "unknown whether it is running: you may not read Leases")
    fresh = [
        (lease, since) for lease in leases if (since := _seconds_since_renewal(lease, now)) is not None and lease.holder
    ]
    active = [(lease, since) for lease, since in fresh if abs(since) < LOCK_EXPIRY_SECONDS]
    if active:
        lease, since = min(active, key=lambda each: abs(each[1]))
        place, when = lease.metadata.namespace, duration_text(max(0.0, since))
        text = f"{lease.holder} is running: it renewed the Lease in {place} {when} ago"
        more = [f"{each.holder} in {each.metadata.namespace}" for each, _ in active if each is not lease]
        if not more:
            return Finding("ok", "operator", text)
        return Finding("warning", "operator", f"{text}; so did {joined(more)}", _TWO_LEADERS)
    if has_rival:
        return Finding("ok", "operator", "Tarragon's operator is not running; another one is")
    last = "the last one released its Lease" if leases else "its Lease does not exist"
    if fresh:
        lease, since = min(fresh, key=lambda each: each[1])
        last = (
            f"the last one, {lease.holder}, renewed its Lease in {lease.metadata.namespace} {duration_text(since)} ago"
        )
    return Finding("error", "operator", f"not running: {last}")


def _stopped_operator(finding: Finding, others: ClusterState) -> Finding:
    """Adds the Deployment that should run the operator, and how to see why it does not."""
    installed = [each for each in others.deployments if each.metadata.labels.get(_LABEL) == "tarragon"]
    if not installed:
        remedy = _UNSEEN if "Deployments" in others.unreadable else _INSTALL
        return replace(finding, remedy=remedy)
    # One that has no pods is the likely reason.
    deployment = min(installed, key=lambda each: each.status.available_replicas)
    home, name = deployment.metadata.namespace, deployment.metadata.name
    kubectl = f"kubectl -n {home}"
    where, available, wanted = (
        f"Deployment {home}/{name}",
        deployment.status.available_replicas,
        deployment.spec.replicas,
    )
    if not wanted:
        text, remedy = f"{where} is scaled to 0", f"{kubectl} scale deployment {name} --replicas=1"
    elif available:
        text = f"{where} has {count(available, 'running pod')}, of which none holds the Lease"
        remedy = f"{kubectl} logs deployment/{name} shows why"
    else:
        whose = "its pod is not" if wanted == 1 else f"none of its {count(wanted, 'pod')} is"
        text = f"{where} is there, but {whose} available"
        remedy = (
            f"{kubectl} describe pods -l {_LABEL}=tarragon shows why, or, if it starts and ends, {kubectl} logs "
            f"deployment/{name}; if there are none, {kubectl} describe replicasets does"
        )
    return replace(finding, text=f"{finding.text}; {text}", remedy=remedy)


def _seconds_since_renewal(lease: Lease, now: dt.datetime) -> float | None:
    try:
        return (now - parse_time(lease.spec.renew_time or "")).total_seconds()
    except ValueError:
        return None
