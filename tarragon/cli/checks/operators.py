"""Who keeps the jobs of a cluster: our operator, by its Lease, another one, or nobody. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import elapsed, listed
from tarragon.client.leader_election import Held
from tarragon.kube.codec import moment
from tarragon.operator.coexistence.rivals import FRESH_SECONDS, Found, rivals

_INSTALL = "kubectl apply -k deploy installs one; `tarragon operator` runs one from here"
_TWO = "if they keep the same namespaces, both lead: end one, or name one Lease with --lease-namespace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """`leases`: ours, None where they may not be looked at. `unseen`: what else could not be looked at, in words."""

    leases: Sequence[Held] | None
    others: Found = field(default_factory=Found)
    unseen: Sequence[str] = ()


def operators(seen: Seen, now: dt.datetime) -> Iterator[Finding]:
    """Two look at a cluster with two clocks: a Lease of the last minute is fresh enough."""
    found = rivals(seen.others, Found(), now)
    yield _ours(seen, now, has_rival=bool(found))
    for rival in found:
        text = f"{rival} is at work, too: Tarragon's operator leaves {' and '.join(sorted(rival.kinds))} to it"
        remedy = f"scale it to 0 when Tarragon is to keep them: kubectl get deployments -A | grep {rival.program}"
        yield Finding("warning", "others", text, remedy)
    if not found:
        unseen = f"; {', '.join(seen.unseen)} could not be looked at" if seen.unseen else ""
        yield Finding("ok", "others", f"no other training operator was seen{unseen}")


def _ours(seen: Seen, now: dt.datetime, *, has_rival: bool) -> Finding:
    if seen.leases is None:
        return Finding("ok", "operator", "whether one is at work can't be seen: you may not look at Leases")
    fresh = [(lease, since) for lease in seen.leases if (since := _since(lease, now)) is not None and lease.holder]
    at_work = [(lease, since) for lease, since in fresh if abs(since) < FRESH_SECONDS]
    if at_work:
        lease, since = min(at_work, key=lambda each: abs(each[1]))
        place, when = lease.metadata.namespace, elapsed(max(0.0, since))
        text = f"{lease.holder} is at work, says the Lease in {place} of {when} ago"
        more = [f"{each.holder} in {each.metadata.namespace}" for each, _ in at_work if each is not lease]
        if not more:
            return Finding("ok", "operator", text)
        return Finding("warning", "operator", f"{text}; another Lease has {listed(more)}", _TWO)
    if has_rival:
        return Finding("ok", "operator", "none of Tarragon's is at work; another one is")
    if fresh:
        lease, since = min(fresh, key=lambda each: each[1])
        last = f"the last one, {lease.holder}, renewed its Lease in {lease.metadata.namespace} {elapsed(since)} ago"
        return Finding(
            "error", "operator", f"none is at work: {last}", f"kubectl -n {lease.metadata.namespace} get pods"
        )
    last = "the last one gave its Lease back" if seen.leases else "nobody has ever held its Lease"
    return Finding("error", "operator", f"none is at work: {last}", _INSTALL)


def _since(lease: Held, now: dt.datetime) -> float | None:
    try:
        return (now - moment(lease.spec.renew_time or "")).total_seconds()
    except ValueError:
        return None
