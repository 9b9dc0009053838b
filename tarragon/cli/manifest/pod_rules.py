"""Applies the API server's own rules to the pod templates of a job: otherwise its pods would be rejected one by one.

They are those of the embedded cluster, which are compared with a real kube-apiserver's. Importing them takes a while,
so only `validate` asks; `run` reports what the API server says.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator

from tarragon.base.errors import Problem
from tarragon.cli.jobview.pod_templates import pod_templates
from tarragon.kube.meta import Json, JsonObject
from tarragon.localcluster.validation import pods


def rejected_fields(job: JsonObject, provided: Collection[str]) -> Iterator[Problem]:
    """Yields a problem for each field that an API server rejects. The job must have been validated.

    `provided` are the names of volumes that the operator adds.
    """
    for path, template in pod_templates(job):
        spec = copy.deepcopy(_without_nulls(template["spec"]))
        users = [volume["name"] for volume in spec.get("volumes", [])]
        spec["volumes"] = [*spec.get("volumes", []), *({"name": name} for name in provided if name not in users)]
        spec["restartPolicy"] = "Never"  # the job's, whatever the template says
        pod = {"metadata": {"creationTimestamp": ""}, "spec": spec}
        pods.prepare_create(pod)
        for fault in pods.faults(pod):
            yield Problem(f"{path}{fault.field.removeprefix('spec')}", fault.message)


def _without_nulls(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
