"""The rules of roles and their bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tarragon.kube import name_validation
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value, required, unsupported

Json = dict[str, Any]

GROUP = "rbac.authorization.k8s.io"
_SUBJECTS = ("ServiceAccount", "User", "Group")


def default_binding(binding: Json, _: Mapping[str, Any] | None = None) -> None:
    """Users and groups are of this API's group; service accounts of the core."""
    reference = binding.get("roleRef")
    if isinstance(reference, dict) and not reference.get("apiGroup"):
        reference["apiGroup"] = GROUP
    for subject in binding.get("subjects") or ():
        if subject.get("kind") in {"User", "Group"} and not subject.get("apiGroup"):
            subject["apiGroup"] = GROUP


def prepare_binding(binding: Json) -> None:
    default_binding(binding)


def role_faults(role: Mapping[str, Any]) -> Iterator[FieldError]:
    for index, rule in enumerate(role.get("rules") or ()):
        yield from _rule_faults(f"rules[{index}]", rule, is_namespaced=True)


def cluster_role_faults(role: Mapping[str, Any]) -> Iterator[FieldError]:
    for index, rule in enumerate(role.get("rules") or ()):
        yield from _rule_faults(f"rules[{index}]", rule, is_namespaced=False)
    aggregation = role.get("aggregationRule")
    if aggregation is not None:
        yield from _aggregation_faults(aggregation.get("clusterRoleSelectors") or ())


def binding_faults(binding: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _reference_faults(binding.get("roleRef") or {}, ("Role", "ClusterRole"))
    for index, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_faults(f"subjects[{index}]", subject, is_namespaced=True)


def cluster_binding_faults(binding: Mapping[str, Any]) -> Iterator[FieldError]:
    yield from _reference_faults(binding.get("roleRef") or {}, ("ClusterRole",))
    for index, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_faults(f"subjects[{index}]", subject, is_namespaced=False)


def binding_update_faults(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[FieldError]:
    if new.get("roleRef") != old.get("roleRef"):
        reference = new.get("roleRef") or {}
        # With the names of Go's fields, as a real server prints it.
        shown = {name: reference.get(name[0].lower() + name[1:], "") for name in ("Kind", "Name")}
        yield invalid_value("roleRef", {"APIGroup": reference.get("apiGroup", ""), **shown}, "field is immutable")


def _rule_faults(path: str, rule: Mapping[str, Any], *, is_namespaced: bool) -> Iterator[FieldError]:
    if not rule.get("verbs"):
        yield required(f"{path}.verbs")
    if urls := rule.get("nonResourceURLs"):
        if is_namespaced:
            words = "namespaced rules cannot apply to non-resource URLs"
            yield invalid_value(f"{path}.nonResourceURLs", urls, words)
        elif any(rule.get(field) for field in ("apiGroups", "resources", "resourceNames")):
            words = "rules cannot apply to both regular resources and non-resource URLs"
            yield invalid_value(f"{path}.nonResourceURLs", urls, words)
        return
    if not rule.get("apiGroups"):
        yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield required(f"{path}.resources", "resource rules must supply at least one resource")


def _aggregation_faults(selectors: Any) -> Iterator[FieldError]:
    path = "aggregationRule.clusterRoleSelectors"
    if not selectors:
        yield required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil")
    for index, selector in enumerate(selectors):
        for number, expression in enumerate(selector.get("matchExpressions") or ()):
            place = f"{path}[{index}].matchExpressions[{number}]"
            if expression.get("operator") not in {"In", "NotIn", "Exists", "DoesNotExist"}:
                yield invalid_value(f"{place}.operator", expression.get("operator"), "not a valid selector operator")


def _reference_faults(reference: Mapping[str, Any], kinds: tuple[str, ...]) -> Iterator[FieldError]:
    if reference.get("apiGroup") != GROUP:
        yield unsupported("roleRef.apiGroup", reference.get("apiGroup", ""), (GROUP,))
    if reference.get("kind") not in kinds:
        yield unsupported("roleRef.kind", reference.get("kind", ""), kinds)
    if not reference.get("name"):
        yield required("roleRef.name")
    elif words := name_validation.path_segment(reference["name"]):
        yield invalid_value("roleRef.name", reference["name"], words)


def _subject_faults(path: str, subject: Mapping[str, Any], *, is_namespaced: bool) -> Iterator[FieldError]:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        yield required(f"{path}.name")
    if kind not in _SUBJECTS:
        yield unsupported(f"{path}.kind", kind, _SUBJECTS)
        return
    if kind == "ServiceAccount":
        if name and (words := name_validation.subdomain(name)):
            yield invalid_value(f"{path}.name", name, words)
        if group:
            yield unsupported(f"{path}.apiGroup", group, ("",))
        if not is_namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif group != GROUP:
        yield unsupported(f"{path}.apiGroup", group, (GROUP,))
