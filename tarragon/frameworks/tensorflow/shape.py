"""Decodes a TFJob with a map of replicas: all generations since v1alpha2, including the fields of DRAGON."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from tarragon.frameworks.plugin import Manifest, Reading
from tarragon.frameworks.tensorflow.fields import (
    ELASTIC,
    FLAT_POLICIES,
    GROUP,
    KIND,
    NESTED_ONLY,
    OF_OTHER_GENERATIONS,
    Policy,
    Spec,
)
from tarragon.frameworks.tensorflow.replicas import read_groups
from tarragon.job.annotations import in_words_that_count
from tarragon.job.indexes import MOST
from tarragon.job.model import (
    CleanPodPolicy,
    Elastic,
    ReplicaGroup,
    ReplicaType,
    RunPolicy,
    SchedulingPolicy,
    SuccessPolicy,
    TrainingJob,
)
from tarragon.kube.codec import moment
from tarragon.kube.meta import Key
from tarragon.kube.podtemplate import checked
from tarragon.kube.reader import INT32, INT64, Notes, Reader

T = TypeVar("T")

TOP = ("apiVersion", "kind", "metadata", "spec", "status")
GENERATED_TAIL = "xxxxx"
"""Stands for the suffix that the API server appends to metadata.generateName, so that derived lengths are right."""


OF_SOME = frozenset({Spec.REPLICAS, *FLAT_POLICIES, *NESTED_ONLY, *ELASTIC})
"""The fields that have an effect in at least one generation with a map of replicas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The fields of a generation, and its defaults."""

    generation: str
    clean_pods: CleanPodPolicy
    api_version: str = f"{GROUP}/v1"
    fields: frozenset[str] = OF_SOME
    """The fields of spec in this generation. All other fields have no effect."""


def reader(defaults: Defaults) -> Callable[[Manifest], Reading]:
    """The `read` of a dialect."""
    return lambda manifest: read(manifest, defaults)


def read(manifest: Manifest, defaults: Defaults) -> Reading:
    """Decode a manifest. Never raises: every fault becomes a Problem."""
    notes = Notes()
    root = Reader(manifest, "", notes)
    root.only(TOP)
    spec = root.field("spec")
    if spec.is_missing:
        spec.problem("is missing", f"a {KIND} needs spec.{Spec.REPLICAS}")
    job = _job(root, _of_generation(spec, defaults), defaults)
    _fields(spec, defaults)
    return Reading(job=job, problems=notes.problems, unknown=notes.unknown, warnings=notes.warnings)


def _job(root: Reader, spec: Reader, defaults: Defaults) -> TrainingJob:
    metadata = root.field("metadata")
    _check(metadata)
    quiet = Reader(metadata.value, metadata.path, Notes())
    groups = read_groups(spec.field(Spec.REPLICAS))
    elastic = _elastic(spec, groups)
    return TrainingJob(
        kind=KIND,
        api_version=defaults.api_version,
        generation=defaults.generation,
        key=Key(quiet.field("namespace").text(), name_of(quiet, metadata)),
        uid=quiet.field("uid").text(),
        created=time_of(quiet.field("creationTimestamp")),
        groups=tuple(_clamped(group, elastic, spec.notes) for group in groups),
        run_policy=run_policy(spec, defaults.clean_pods),
        success_policy=spec.field(Spec.SUCCESS_POLICY).one_of(SuccessPolicy, SuccessPolicy.WORKER_ZERO),
        elastic=elastic,
        sparse_cluster=spec.field(Spec.DYNAMIC_WORKER).truth(),
        labels=quiet.field("labels").texts(),
        annotations=quiet.field("annotations").texts(),
    )


def _check(metadata: Reader) -> None:
    found = Notes()
    checked(Reader(metadata.value, metadata.name, found, metadata.parent), "ObjectMeta")
    metadata.notes.add(replace(found, problems=[in_words_that_count(problem) for problem in found.problems]))


def name_of(quiet: Reader, metadata: Reader) -> str:
    name = quiet.field("name").text()
    if name:
        return name
    generated = quiet.field("generateName").text()
    if generated:
        return generated + GENERATED_TAIL
    if metadata.field("name").is_missing:
        metadata.field("name").problem("is missing", "give the job a name")
    else:
        metadata.field("name").problem("is empty", "give the job a name")
    return ""


def time_of(found: Reader) -> dt.datetime | None:
    try:
        return moment(found.text())
    except (ValueError, OverflowError):
        return None


def run_policy(spec: Reader, clean_pods: CleanPodPolicy) -> RunPolicy:
    """Decode the run policy. `clean_pods` is the default of cleanPodPolicy."""
    nested = spec.field(Spec.RUN_POLICY)
    nested.is_map()

    def limit(name: Policy, maximum: int = INT32) -> int | None:
        return _policy(spec, name, lambda found: found.whole(0, maximum))

    return RunPolicy(
        clean_pods=_policy(spec, Policy.CLEAN_POD_POLICY, lambda found: found.one_of(CleanPodPolicy, clean_pods)),
        ttl_after_finished=limit(Policy.TTL),
        active_deadline=limit(Policy.ACTIVE_DEADLINE, INT64),
        backoff_limit=limit(Policy.BACKOFF_LIMIT),
        suspend=nested.field(Policy.SUSPEND).truth(),
        managed_by=nested.field(Policy.MANAGED_BY).text(),
        scheduling=_scheduling(nested.field(Policy.SCHEDULING)),
    )


def _policy(spec: Reader, name: Policy, read_value: Callable[[Reader], T]) -> T:
    """Decode a policy from spec or spec.runPolicy. If both have it, runPolicy wins, with a warning."""
    flat, nested = spec.field(name), spec.field(Spec.RUN_POLICY).field(name)
    if flat.is_missing:
        return read_value(nested)
    if spec.field(Spec.RUN_POLICY).is_missing:
        return read_value(flat)
    if nested.is_missing:
        flat.warn("should be in spec.runPolicy, but has an effect", f"move it to {nested.path}")
        return read_value(flat)
    flat.warn(f"has no effect, because {nested.path} overrides it", "remove one of the two")
    return read_value(nested)


def _scheduling(found: Reader) -> SchedulingPolicy:
    found.is_map()
    found.only(("minAvailable", "queue", "minResources", "priorityClass", "scheduleTimeoutSeconds"))
    return SchedulingPolicy(
        queue=found.field("queue").text(),
        priority_class=found.field("priorityClass").text(),
        min_available=found.field("minAvailable").whole(),
        min_resources=checked(found.field("minResources"), "{quantity") or {},
        timeout=found.field("scheduleTimeoutSeconds").whole(),
    )


def _elastic(spec: Reader, groups: Iterable[ReplicaGroup]) -> Elastic | None:
    """DRAGON's bounds. A missing one defaults to the requested number of workers."""
    least, most = spec.field(Spec.MIN_INSTANCES), spec.field(Spec.MAX_INSTANCES)
    if least.is_missing and most.is_missing:
        return None
    wish = next((group.wish for group in groups if group.type is ReplicaType.WORKER), 1)
    minimum, maximum = least.whole(1, MOST), most.whole(1, MOST)
    if minimum is None:
        minimum = min(wish, maximum or wish)
    return Elastic(minimum, maximum if maximum is not None else max(wish, minimum))


def _clamped(group: ReplicaGroup, elastic: Elastic | None, notes: Notes) -> ReplicaGroup:
    if elastic is None or group.type is not ReplicaType.WORKER or elastic.minimum > elastic.maximum:
        return group
    wish = min(max(group.wish, elastic.minimum), elastic.maximum)
    if wish != group.wish:
        bounds = f"{elastic.minimum} to {elastic.maximum}"
        written = Reader(group.wish, f"{group.path}.replicas", notes)
        written.warn(f"{group.wish} is outside the allowed range of {bounds}: the job requests {wish}")
    return replace(group, wish=wish)


def _of_generation(spec: Reader, defaults: Defaults) -> Reader:
    """The spec without the fields of other generations."""
    if not isinstance(spec.value, dict) or spec.value.keys() <= defaults.fields:
        return spec
    known = {name: value for name, value in spec.value.items() if name in defaults.fields}
    return replace(spec, value=known)


def _fields(spec: Reader, defaults: Defaults) -> None:
    """Note unknown fields and those without effect. Misplaced fields get a more specific remedy than that of `only`."""
    misplaced = frozenset(Policy) - FLAT_POLICIES
    for name, value in spec.fields():
        if name in OF_OTHER_GENERATIONS:
            value.warn(f"has no effect with spec.{Spec.REPLICAS}: it belongs to an older generation", "remove it")
        elif name in (misplaced | OF_SOME) - defaults.fields:
            value.note_unknown(_remedy(name, defaults))
    spec.only({*OF_SOME, *OF_OTHER_GENERATIONS, *misplaced})
    if Spec.RUN_POLICY in defaults.fields:
        spec.field(Spec.RUN_POLICY).only(frozenset(Policy))


def _remedy(name: str, defaults: Defaults) -> str:
    if name not in OF_SOME and Spec.RUN_POLICY in defaults.fields:
        return f"move it to spec.{Spec.RUN_POLICY}.{name}"
    if name == Spec.RUN_POLICY:
        flat = ", ".join(sorted(FLAT_POLICIES & defaults.fields))
        return f"{defaults.api_version} has these policies directly in spec: {flat}"
    return f"{defaults.api_version} does not have it: submit the job as {GROUP}/v1"
