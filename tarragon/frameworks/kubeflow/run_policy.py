"""Decodes the run policy: limits, clean-up, suspension, and what the job asks of a gang scheduler."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.job.model import CleanPodPolicy, RunPolicy, SchedulingPolicy
from tarragon.kube.field_reader import INT32, INT64, FieldReader
from tarragon.kube.pod_validation import validated

T = TypeVar("T")


def decode_run_policy(spec: FieldReader, clean_pods: CleanPodPolicy) -> RunPolicy:
    """Decode the run policy. `clean_pods` is the default of cleanPodPolicy."""
    nested = spec.field(RUN_POLICY)
    nested.is_map()

    def limit(name: PolicyField, maximum: int = INT32) -> int | None:
        return _policy(spec, name, lambda found: found.integer(0, maximum))

    return RunPolicy(
        clean_pod_policy=_policy(
            spec, PolicyField.CLEAN_POD_POLICY, lambda found: found.enum(CleanPodPolicy, clean_pods)
        ),
        ttl_seconds_after_finished=limit(PolicyField.TTL),
        active_deadline_seconds=limit(PolicyField.ACTIVE_DEADLINE, INT64),
        backoff_limit=limit(PolicyField.BACKOFF_LIMIT),
        suspend=nested.field(PolicyField.SUSPEND).boolean(),
        managed_by=nested.field(PolicyField.MANAGED_BY).string(),
        scheduling_policy=_scheduling(nested.field(PolicyField.SCHEDULING)),
    )


def _policy(spec: FieldReader, name: PolicyField, read_value: Callable[[FieldReader], T]) -> T:
    """Decode a policy from spec or spec.runPolicy. If both have it and differ, runPolicy wins, with a warning."""
    flat, nested = spec.field(name), spec.field(RUN_POLICY).field(name)
    if flat.is_missing:
        return read_value(nested)
    if spec.field(RUN_POLICY).is_missing:
        return read_value(flat)
    if nested.is_missing:
        flat.add_warning("should be in spec.runPolicy, but has an effect", f"move it to {nested.path}")
        return read_value(flat)
    if flat.value != nested.value:  # training-operator copied the cleanPodPolicy of an MPIJob to where it was missing
        flat.add_warning(f"has no effect, because {nested.path} overrides it", "remove one of the two")
    return read_value(nested)


def _scheduling(found: FieldReader) -> SchedulingPolicy:
    found.is_map()
    found.note_unknown_fields(("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds"))
    return SchedulingPolicy(
        queue=found.field("queue").string(),
        priority_class=found.field("priorityClass").string(),
        min_available=found.field("minAvailable").integer(),
        min_resources=validated(found.field("minResources"), "{quantity") or {},
        schedule_timeout_seconds=found.field("scheduleTimeoutSeconds").integer(),
    )
