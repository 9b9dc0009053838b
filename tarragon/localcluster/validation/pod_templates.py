"""What all kinds with a pod template share: defaults, and validation of template, selector and counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tarragon.kube import name_validation
from tarragon.kube.selectors import label_selector_as_predicate
from tarragon.localcluster.schema.field_errors import FieldError, invalid_value, required, unsupported
from tarragon.localcluster.validation import pods

Json = dict[str, Any]

_ACCOUNT_FIELDS = ("serviceAccountName", "serviceAccount")
_SELECTOR_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def default_template(template: Json) -> None:
    """Fill in the defaults of a pod, except those that admission adds to pods only."""
    spec = template.setdefault("spec", {})
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    links = spec.get("enableServiceLinks")
    template.setdefault("metadata", {})
    pods.prepare_update(template, {})
    for field in _ACCOUNT_FIELDS:
        spec.pop(field, None)
        if account:
            spec[field] = account
    if links is None:
        del spec["enableServiceLinks"]


def template_faults(path: str, template: Mapping[str, Any], policies: Sequence[str]) -> Iterator[FieldError]:
    """Faults of a pod template. `policies` are the restart policies that the kind allows."""
    labels = (template.get("metadata") or {}).get("labels") or {}
    for key, value in labels.items():
        if words := name_validation.qualified(key):
            yield invalid_value(f"{path}.metadata.labels", key, words)
        if words := name_validation.label_value(value):
            yield invalid_value(f"{path}.metadata.labels", value, words)
    for fault in pods.faults(template):
        yield fault.under(path)
    policy = template["spec"]["restartPolicy"]
    if policy not in policies:
        yield unsupported(f"{path}.spec.restartPolicy", policy, policies)


def selector_faults(path: str, selector: Mapping[str, Any] | None) -> Iterator[FieldError]:
    if selector is None:
        yield required(path)
        return
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield invalid_value(path, selector, "empty selector is invalid for deployment")
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        place = f"{path}.matchExpressions[{index}]"
        operator, values = expression.get("operator", ""), expression.get("values") or []
        if operator not in _SELECTOR_OPERATORS:
            yield invalid_value(f"{place}.operator", operator, "not a valid selector operator")
        elif operator in {"In", "NotIn"} and not values:
            yield required(f"{place}.values", "must be specified when `operator` is 'In' or 'NotIn'")
        if words := name_validation.qualified(expression.get("key", "")):
            yield invalid_value(f"{place}.key", expression.get("key", ""), words)


def selector_mismatch_faults(selector: Mapping[str, Any] | None, template: Mapping[str, Any]) -> Iterator[FieldError]:
    """Faults of a selector that does not match the template: its controller would create pods without end."""
    if not selector or any(True for _ in selector_faults("", selector)):
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if not label_selector_as_predicate(selector)(labels):
        yield invalid_value("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def count_faults(spec: Mapping[str, Any], *fields: str) -> Iterator[FieldError]:
    for field in fields:
        value = spec.get(field)
        if value is not None and value < 0:
            yield invalid_value(f"spec.{field}", value, "must be greater than or equal to 0")


def int_or_percent_faults(path: str, value: Any) -> Iterator[FieldError]:
    """Faults of a number or percentage of pods: `2`, `25%`."""
    if isinstance(value, int):
        if value < 0:
            yield invalid_value(path, value, "must be greater than or equal to 0")
    elif value is not None and not (value.endswith("%") and value[:-1].isdigit()):
        words = (
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
            "regex used for validation is '[0-9]+%')"
        )
        yield invalid_value(path, value, words)


def immutable_faults(path: str, new: Any, old: Any) -> Iterator[FieldError]:
    if new != old:
        yield invalid_value(path, new, "field is immutable")
