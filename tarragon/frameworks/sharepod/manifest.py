"""Reads a SharePod: its spec is that of a pod, and its labels and annotations are those of its pod."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from tarragon.base.errors import Problem
from tarragon.frameworks.dialect_detection import LAST_APPLIED_ANNOTATION
from tarragon.frameworks.kubeflow.decoding import manifest_decoder
from tarragon.frameworks.kubeflow.metadata import check_metadata, decode_name, decode_time
from tarragon.frameworks.plugin import Rule
from tarragon.frameworks.sharepod.fields import POD, ROLES, SHAREPODS
from tarragon.job.annotations import JOB_ANNOTATIONS
from tarragon.job.model import CleanPodPolicy, ReplicaSpec, RestartPolicy, RunPolicy, TrainingJob
from tarragon.kube.field_reader import CollectedProblems, FieldReader
from tarragon.kube.meta import Json, JsonObject, Key
from tarragon.kube.name_validation import subdomain
from tarragon.kube.pod_validation import validated

KUBESHARE_SCHEDULER = "kubeshare-scheduler"

_NOT_COPIED = JOB_ANNOTATIONS | {LAST_APPLIED_ANNOTATION}


class _PodRestartPolicy(StrEnum):
    """A pod's restartPolicy, in the order of the API's documentation. Always is the default."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"


def _decode_spec(root: FieldReader, spec: FieldReader) -> TrainingJob:
    metadata = root.field("metadata")
    check_metadata(metadata)
    quiet = FieldReader(metadata.value, metadata.path, CollectedProblems())
    labels, annotations = quiet.field("labels").string_map(), quiet.field("annotations").string_map()
    policy = spec.field("restartPolicy").enum(_PodRestartPolicy, _PodRestartPolicy.ALWAYS)
    return TrainingJob(
        kind=SHAREPODS.kind,
        api_version=SHAREPODS.api_version,
        dialect=SHAREPODS.api_version,
        key=Key(quiet.field("namespace").string(), decode_name(quiet, metadata)),
        uid=quiet.field("uid").string(),
        creation_time=decode_time(quiet.field("creationTimestamp")),
        replica_specs=(
            ReplicaSpec(
                type=POD,
                role=ROLES[POD],
                replicas=1,
                restart_policy=RestartPolicy(policy.value),
                template=_template(labels, annotations, validated(spec, "PodSpec")),
            ),
        ),
        run_policy=RunPolicy(clean_pod_policy=CleanPodPolicy.NONE),
        labels=labels,
        annotations=annotations,
    )


decode = manifest_decoder(_decode_spec, needs="write the spec of a pod")


def of_the_object(rule: Rule) -> Rule:
    """The rule with the paths of a SharePod, whose metadata and spec are themselves the template."""

    def of_object(job: TrainingJob) -> Iterator[Problem]:
        for problem in rule(job):
            yield replace(problem, path=problem.path.removeprefix(".template."))

    return of_object


def name_fits(job: TrainingJob) -> Iterator[Problem]:
    fault = subdomain(job.key.name)
    if job.key.name and fault:
        yield Problem("metadata.name", fault)


def _template(labels: Mapping[str, str], annotations: Mapping[str, str], spec: Json) -> JsonObject:
    copied = {name: value for name, value in annotations.items() if name not in _NOT_COPIED}
    metadata = {name: found for name, found in (("labels", dict(labels)), ("annotations", copied)) if found}
    return {"metadata": metadata, "spec": _without_kubeshare_scheduler(spec or {})}


def _without_kubeshare_scheduler(spec: JsonObject) -> JsonObject:
    """KubeShare 1 placed every SharePod, and the scheduler of that name, which is KubeShare 2's, knows none of them."""
    if spec.get("schedulerName") != KUBESHARE_SCHEDULER:
        return spec
    return {name: value for name, value in spec.items() if name != "schedulerName"}
