"""Builds the ValidatingAdmissionPolicies of deploy/components/admission-policy, in CEL, from the kinds' schemas."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tarragon.frameworks.kubeflow.fields import RUN_POLICY, PolicyField
from tarragon.frameworks.mpi.framework import MPI
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.kube.pod_validation import type_schemas
from tarragon.operator.rbac import ADMIT

GROUP = "admissionregistration.k8s.io"
GROUPS = sorted({framework.resource.group for framework in FRAMEWORKS})
KINDS = sorted({framework.resource.plural for framework in FRAMEWORKS})
_OWNED = (
    "{object}.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false)"
    f" && owner.apiVersion.split('/')[0] in {GROUPS})"
)

Json = dict[str, Any]


def policies(operator_namespace: str) -> Iterator[Json]:
    """Each policy, followed by its binding."""
    yield from _denying("tarragon-status", status_policy())
    yield from _denying("tarragon-operator", operator_policy(operator_namespace))
    for framework in FRAMEWORKS:
        if framework is not SHAREPOD:  # Its spec is that of a pod.
            kind = framework.resource
            name = f"tarragon-unknown-fields-{kind.plural}.{kind.group}"
            yield from _with_binding(name, unknown_fields_policy(framework), "Warn")


def status_policy() -> Json:
    """Only who may admit jobs writes what the operator records in their status."""
    checked = (
        "authorizer.group(request.resource.group).resource(request.resource.resource).subresource('status')"
        f".namespace(request.namespace).name(request.name).check('{ADMIT}').allowed()"
    )
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _matching(_rule(("UPDATE",), GROUPS, [f"{kind}/status" for kind in KINDS])),
        "matchConditions": [
            {
                "name": "changes-what-the-operator-records",
                "expression": "object.?status.?tarragon != oldObject.?status.?tarragon",
            }
        ],
        "validations": [
            {
                "expression": checked,
                "message": "only Tarragon's operator writes status.tarragon; who repairs it by hand needs the verb "
                f"{ADMIT} on the status of jobs",
                "reason": "Forbidden",
            }
        ],
    }


def operator_policy(namespace: str) -> Json:
    """The operator changes only its own objects and those of jobs, whatever its role allows."""
    known = "request.operation == 'CREATE' ? object : oldObject"
    owned = _OWNED.format(object="variables.known")
    return {
        "failurePolicy": "Fail",
        "matchConstraints": _matching(
            _rule(("CREATE", "UPDATE", "DELETE"), [""], ["pods", "services", "configmaps", "secrets"]),
            _rule(("CREATE",), [""], ["serviceaccounts"]),
            _rule(("CREATE", "UPDATE"), ["rbac.authorization.k8s.io"], ["roles", "rolebindings"]),
            _rule(("CONNECT",), [""], ["pods/exec"]),
        ),
        "matchConditions": [
            {
                "name": "is-the-operator",
                "expression": f"request.userInfo.username == 'system:serviceaccount:{namespace}:tarragon'",
            },
        ],
        "variables": [{"name": "known", "expression": known}],
        "validations": [
            {
                "expression": "request.operation != 'CONNECT'",
                "message": "Tarragon's operator runs no commands in pods",
                "reason": "Forbidden",
            },
            {
                "expression": f"request.operation == 'CONNECT' || request.namespace == '{namespace}' || {owned}",
                "message": "Tarragon's operator writes only objects that a job controls",
                "reason": "Forbidden",
            },
            {
                "expression": "request.operation != 'UPDATE' || request.resource.resource != 'pods'"
                " || (object.spec == oldObject.spec && object.metadata.?labels == oldObject.metadata.?labels"
                " && object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences)",
                "message": "Tarragon's operator changes nothing of a pod but annotations",
                "reason": "Forbidden",
            },
        ],
    }


def unknown_fields_policy(framework: Framework) -> Json:
    """Names the unknown fields of a job. The CRD keeps them, so the server itself finds none."""
    [version, *_] = framework.crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    maps = [name for name, schema in spec.items() if "additionalProperties" in schema]
    lists = [name for name, schema in spec.items() if schema["type"] == "array" and schema["items"].get("properties")]
    policy = spec[RUN_POLICY]["properties"]
    scheduling = policy[PolicyField.SCHEDULING.value]["properties"]
    checks = [
        ("spec", "variables.spec", spec),
        (f"spec.{RUN_POLICY}", f"variables.spec.?{RUN_POLICY}.orValue({{}})", policy),
        (
            f"spec.{RUN_POLICY}.{PolicyField.SCHEDULING}",
            f"variables.spec.?{RUN_POLICY}.?{PolicyField.SCHEDULING}.orValue({{}})",
            scheduling,
        ),
    ]
    texts = [_names(value, _texts(known), f"'{place}.'") for place, value, known in checks]
    if framework is MPI:
        # The decoder of v1alpha1 compares names without case, as Go does: the first examples spell `GPUs`.
        lower = _texts({name.lower() for name in spec})
        is_older = f"has(variables.spec.template) && variables.spec.all(field, field.lowerAscii() in {lower})"
        texts[0] = f"{is_older} ? '' : {texts[0]}"
    for name in maps:
        groups = f"variables.spec.?{name}.orValue({{}})"
        place = f"'spec.{name}.' + key + '."
        texts += _of_groups(groups, f"{groups}[key]", place, spec[name]["additionalProperties"])
    for name in lists:
        groups = f"variables.spec.?{name}.orValue([])"
        texts += _of_groups(groups, "key", f"'spec.{name}[].", spec[name]["items"])
    types = type_schemas()
    return {
        "failurePolicy": "Ignore",
        "matchConstraints": _matching(
            _rule(("CREATE", "UPDATE"), [framework.resource.group], [framework.resource.plural])
        ),
        "matchConditions": [
            {"name": "changes-the-spec", "expression": "oldObject == null || object.?spec != oldObject.?spec"}
        ],
        "variables": [
            {"name": "spec", "expression": "object.?spec.orValue({})"},
            {"name": "podFields", "expression": _texts(types["PodSpec"].fields)},
            {"name": "containerFields", "expression": _texts(types["Container"].fields)},
            *({"name": f"unknown{number}", "expression": text} for number, text in enumerate(texts)),
        ],
        "validations": [
            {
                "expression": f"variables.unknown{number} == ''",
                "messageExpression": f"'unknown fields, which have no effect: ' + variables.unknown{number}",
            }
            for number, _ in enumerate(texts)
        ],
    }


def _of_groups(groups: str, group: str, place: str, schema: Json) -> Iterator[str]:
    """The fields of replica specs, their pods and containers. `place` is an open text in CEL that ends with a dot."""
    pod, pod_place = f"{group}.?template.?spec.orValue({{}})", f"{place}template.spec."
    containers = f"{pod}.?containers.orValue([])"
    of_container = _names("container", "variables.containerFields", f"{pod_place}containers[].'")
    for text in (
        _names(group, _texts(schema["properties"]), f"{place}'"),
        _names(pod, "variables.podFields", f"{pod_place}'"),
        _joined(containers, "container", of_container),
    ):
        yield _joined(groups, "key", text)


def _names(value: str, known: str, prefix: str) -> str:
    """CEL: the paths of fields of a map that are not known, as one text."""
    return f"{value}.filter(field, !(field in {known})).map(field, {prefix} + field).join(', ')"


def _joined(values: str, variable: str, text: str) -> str:
    """CEL: the texts of all values that are not empty, as one text."""
    return f"{values}.map({variable}, {text}).filter(text, text != '').join(', ')"


def _texts(names: Iterable[str]) -> str:
    return "[" + ", ".join(f"'{name}'" for name in sorted(names)) + "]"


def _matching(*rules: Json) -> Json:
    return {"resourceRules": [*rules]}


def _rule(operations: Sequence[str], groups: Sequence[str], resources: Sequence[str]) -> Json:
    return {
        "apiGroups": [*groups],
        "apiVersions": ["*"],
        "operations": [*operations],
        "resources": [*resources],
    }


def _denying(name: str, spec: Mapping[str, Any]) -> Iterator[Json]:
    return _with_binding(name, spec, "Deny")


def _with_binding(name: str, spec: Mapping[str, Any], action: str) -> Iterator[Json]:
    head = {"apiVersion": f"{GROUP}/v1"}
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "tarragon"}}
    yield {**head, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": dict(spec)}
    binding = {"policyName": name, "validationActions": [action]}
    yield {**head, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding}
