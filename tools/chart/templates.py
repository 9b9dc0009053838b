"""The templates of the Helm chart, from the same manifests that kustomize installs.

Every object of deploy/ becomes one of the chart as it is, but for namespace and labels. `_CONDITIONS` says which ones
depend on a value, and `_EDITS` what in them does. An edit fails where the manifest has changed below it.
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from tarragon import __version__
from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.operator.rbac import FOR_AUTHENTICATED_USERS, Permission, Scope, permissions, permissions_of
from tools import make_crds, make_deploy
from tools.make_deploy import DEPLOY, EVERYBODY, OPERATOR_NAMESPACE, binding, encoded, role, rules_of

COMPONENTS = {
    "components/accelerators/accelerators.yaml": "accelerators.yaml",
    "components/admission-policy/policies.yaml": "admission-policy.yaml",
    "components/disruption-budget/disruption-budget.yaml": "disruption-budget.yaml",
    "components/flow-control/flow-control.yaml": "flow-control.yaml",
    "components/monitoring/dashboard.yaml": "dashboard.yaml",
    "components/monitoring/prometheus-rule.yaml": "prometheus-rule.yaml",
    "components/monitoring/service-monitor.yaml": "service-monitor.yaml",
    "components/network-policy/network-policy.yaml": "network-policy.yaml",
    "components/progress-from-logs/permissions.yaml": "progress-from-logs.yaml",
    "components/queues/queues.yaml": "queues.yaml",
}
"""Manifests of kustomize components, and the templates made of them."""
OF_HELM_ITSELF = {"namespace.yaml"}
"""`helm install --create-namespace` does it: a release can't contain the namespace that it is stored in."""

_TAKES_REPORTS = '(include "tarragon.takesReports" $)'
_LABELS = "  labels:\n    app.kubernetes.io/name: tarragon\n"
_OUR_LABELS = '    {{- include "tarragon.labels" $ | nindent 4 }}\n'

_SINCE: Mapping[str, str] = MappingProxyType({"x-kubernetes-validations": "1.25", "selectableFields": "1.30"})
"""The Kubernetes version that first knows a field of CRDs, for those that the oldest supported one does not know."""

Edit = Callable[[str, Mapping[str, Any]], str]
"""From an object's text and the default values to another text."""


def templates(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name and text of each template that is made of manifests. Raises ValueError if they do not fit together."""
    generated = _generated()
    _must_have_all_components()
    installed: list[str] = yaml.safe_load(make_deploy.kustomization())["resources"]
    for source, target in {**{name: name for name in installed}, **COMPONENTS}.items():
        if source in OF_HELM_ITSELF:
            continue
        path = DEPLOY / source
        text = generated.get(path) or path.read_text()
        yield target, _permissions() if source == "permissions.yaml" else _template(source, text, values)


def _must_have_all_components() -> None:
    """Those that leave out a kind are values, too, without a manifest of their own."""
    folders = {path.name for path in (DEPLOY / "components").iterdir() if not path.name.startswith("without-")}
    if missing := folders - {source.split("/")[1] for source in COMPONENTS}:
        raise ValueError(f"add to COMPONENTS in tools/chart/templates.py: {', '.join(sorted(missing))}")


@functools.cache
def _generated() -> Mapping[Path, str]:
    """What the other programs write into deploy/, as they would write it now."""
    return dict((*make_crds.rendered(), *make_deploy.rendered()))


def _template(source: str, text: str, values: Mapping[str, Any]) -> str:
    parts = (_one(part, values) for part in text.split("---\n"))
    whole = "---\n".join(parts)
    condition = _FILES.get(source)
    return _if(condition, whole) if condition else whole


def _one(text: str, values: Mapping[str, Any]) -> str:
    found = yaml.safe_load(text)
    name = found["metadata"]["name"]
    text = _without_head(text).replace("{{", '{{ "{{" }}')  # alerts have templates of their own
    if found["kind"] == "CustomResourceDefinition":
        return _crd(text, name)
    for edit in _EDITS.get(f"{found['kind']}/{name}", ()):
        text = edit(text, values)
    text = _of_the_release(text)
    condition = _CONDITIONS.get(f"{found['kind']}/{name}")
    return _if(condition, text) if condition else text


def _without_head(text: str) -> str:
    return text[text.index("apiVersion:") :] if text.startswith("# Written by") else text


def _of_the_release(text: str) -> str:
    """In the namespace of the release, with the labels of the chart on each object."""
    return text.replace(OPERATOR_NAMESPACE, "{{ $.Release.Namespace }}").replace(_LABELS, _LABELS + _OUR_LABELS)


def _crd(text: str, name: str) -> str:
    head = f"metadata:\n  name: {name}\n"
    kept = "  {{- if $.Values.crds.keep }}\n  annotations:\n    helm.sh/resource-policy: keep\n  {{- end }}\n"
    (framework,) = [each for each in FRAMEWORKS if each.resource.full_name == name]
    wanted = f" {switch}" if (switch := switch_of(framework)) else ""
    condition = f"and $.Values.crds.install{wanted}" if wanted else "$.Values.crds.install"
    return _if(condition, _for_older_servers(_replaced(text, head, head + kept)))


def _for_older_servers(text: str) -> str:
    """Without the fields that a server does not know: helm refuses them before the server could ignore them."""
    for field, version in _SINCE.items():
        block = re.compile(rf"^( *){field}:\n(?:\1(?: |- ).*\n)+", re.MULTILINE)
        text = block.sub(functools.partial(_since, version), text)
    return text


def _since(version: str, block: re.Match[str]) -> str:
    condition = f'semverCompare ">={version}.0-0" $.Capabilities.KubeVersion.Version'
    return _within(len(block[1]), condition, block[0])


def switch_of(framework: Framework) -> str:
    """The value that switches a kind on; empty for one that the operator can't do without."""
    if not framework.is_crd_optional:
        return ""
    plural = framework.resource.plural
    is_taken = framework is not next(each for each in FRAMEWORKS if each.resource.plural == plural)
    key = f"{framework.resource.group.partition('.')[0]}{plural.capitalize()}" if is_taken else plural
    return f"$.Values.kinds.{key}"


def _if(condition: str, text: str) -> str:
    return f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"tools/chart/templates.py expects this once in the manifests of deploy/:\n{old}")
    return text.replace(old, new)


def _replace(old: str, new: str) -> Edit:
    return lambda text, _: _replaced(text, old, new)


def _after(line: str, more: str) -> Edit:
    return _replace(line, line + more)


def _rest(start: str, new: str) -> Edit:
    """Replace everything from there on."""
    return lambda text, _: _replaced(text[: text.find(start) + len(start)], start, new)


def _value(line: str, path: str, template: str) -> Edit:
    """Replace a line of one value, which must be the default value at that path."""

    def edit(text: str, values: Mapping[str, Any]) -> str:
        _must_be_default(yaml.safe_load(line.strip().removeprefix("- ")), path, values)
        return _replaced(text, line, f"{line.partition(':')[0]}: {template}\n")

    return edit


def _block(line: str, path: str) -> Edit:
    """Replace what is below the line with the value at that path, whose default must be the same."""
    indent = len(line) - len(line.lstrip())

    def edit(text: str, values: Mapping[str, Any]) -> str:
        pattern = re.compile(rf"^{re.escape(line)}((?: {{{indent + 1},}}.*\n| {{{indent}}}- .*\n)+)", re.MULTILINE)
        found = pattern.findall(text)
        if len(found) != 1:
            raise ValueError(f"tools/chart/templates.py expects this once in the manifests of deploy/:\n{line}")
        _must_be_default({line.strip(" :\n"): yaml.safe_load(found[0])}, path, values)
        return pattern.sub(_given(path, line.strip(" :\n"), indent), text)

    return edit


def _given(path: str, field: str, indent: int) -> str:
    """The field with that value, if it is not empty."""
    space = " " * indent
    return (
        f"{space}{{{{- with $.Values.{path} }}}}\n{space}{field}:\n"
        f"{space}  {{{{- toYaml . | nindent {indent + 2} }}}}\n{space}{{{{- end }}}}\n"
    )


def _labels(path: str) -> Edit:
    """Further labels of an object."""
    more = f"{{{{- with $.Values.{path} }}}}\n{{{{- toYaml . | nindent 4 }}}}\n{{{{- end }}}}\n"
    return _after(_LABELS, textwrap.indent(more, "    "))


def _must_be_default(found: Mapping[str, Any], path: str, values: Mapping[str, Any]) -> None:
    (value,) = found.values()
    default: Any = values
    for name in path.split("."):
        default = default[name]
    if value != default:
        raise ValueError(f"deploy/chart/values.yaml: {path} is {default!r}, but in the manifests it is {value!r}")


def _image(text: str, values: Mapping[str, Any]) -> str:
    line = f"        image: {values['image']['repository']}:{__version__}\n"
    pull_policy = (
        "        {{- with $.Values.image.pullPolicy }}\n        imagePullPolicy: {{ . }}\n        {{- end }}\n"
    )
    return _replaced(text, line, f'        image: {{{{ include "tarragon.image" $ }}}}\n{pull_policy}')


def _volume(condition: str, name: str, mount: str) -> tuple[Edit, Edit]:
    """A ConfigMap of the chart in the operator's container."""
    mounts = f"        - name: {name}\n          mountPath: {mount}\n          readOnly: true\n"
    volumes = f"      - name: {name}\n        configMap:\n          name: tarragon-{name}\n"
    return (
        _after("          mountPath: /tmp\n", _within(8, condition, mounts)),
        _after("          sizeLimit: 16Mi\n", _within(6, condition, volumes)),
    )


def _within(indent: int, condition: str, text: str) -> str:
    """Lines of an object that depend on a condition."""
    return textwrap.indent(f"{{{{- if {condition} }}}}\n", " " * indent) + text + " " * indent + "{{- end }}\n"


_FILES: Mapping[str, str] = MappingProxyType(
    {
        "users.yaml": "$.Values.rbac.userRoles",
        "progress.yaml": _TAKES_REPORTS,
        "components/accelerators/accelerators.yaml": "$.Values.accelerators",
        "components/admission-policy/policies.yaml": "$.Values.admissionPolicy.enabled",
        "components/disruption-budget/disruption-budget.yaml": "$.Values.podDisruptionBudget.enabled",
        "components/flow-control/flow-control.yaml": "$.Values.flowControl.enabled",
        "components/monitoring/dashboard.yaml": "$.Values.metrics.dashboard",
        "components/monitoring/prometheus-rule.yaml": "$.Values.metrics.prometheusRule.enabled",
        "components/monitoring/service-monitor.yaml": "$.Values.metrics.serviceMonitor.enabled",
        "components/network-policy/network-policy.yaml": "$.Values.networkPolicy.enabled",
        "components/progress-from-logs/permissions.yaml": "$.Values.progress.fromLogs",
        "components/queues/queues.yaml": "$.Values.queues.enabled",
    }
)
"""The condition of all objects of a file, by its path in deploy/."""

_CONDITIONS: Mapping[str, str] = MappingProxyType(
    {
        "Service/tarragon-metrics": "$.Values.metrics.service",
        "Secret/tarragon-progress": "$.Values.progress.createSecret",
    }
)

_PROGRESS_ARGUMENT, _PROGRESS_PORT = make_deploy.PROGRESS_LINES[1:]
_POD = "      serviceAccountName: tarragon\n"

_EDITS: Mapping[str, Sequence[Edit]] = MappingProxyType(
    {
        "ServiceAccount/tarragon": [
            _after(
                _LABELS,
                "  {{- with $.Values.serviceAccount.annotations }}\n  annotations:\n"
                "    {{- toYaml . | nindent 4 }}\n  {{- end }}\n",
            )
        ],
        "Deployment/tarragon": [
            _value("  replicas: 2\n", "replicas", "{{ $.Values.replicas }}"),
            _after(
                "      labels:\n        app.kubernetes.io/name: tarragon\n",
                "        {{- with $.Values.podLabels }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n",
            ),
            _after(
                "        kubectl.kubernetes.io/default-container: operator\n",
                '        {{- include "tarragon.podAnnotations" $ | nindent 8 }}\n',
            ),
            _after(
                _POD,
                _given("image.pullSecrets", "imagePullSecrets", 6)
                + "      {{- with $.Values.priorityClassName }}\n      priorityClassName: {{ . }}\n      {{- end }}\n"
                + _given("nodeSelector", "nodeSelector", 6)
                + _given("tolerations", "tolerations", 6)
                + _given("affinity", "affinity", 6),
            ),
            _block("      securityContext:\n", "podSecurityContext"),
            _block("      topologySpreadConstraints:\n", "topologySpreadConstraints"),
            _image,
            _replace(
                _PROGRESS_ARGUMENT,
                _within(8, _TAKES_REPORTS, _PROGRESS_ARGUMENT)
                + '        {{- include "tarragon.arguments" $ | nindent 8 }}\n',
            ),
            _replace(_PROGRESS_PORT, _within(8, _TAKES_REPORTS, _PROGRESS_PORT)),
            # Last of the variables, so that they win.
            _replace(
                "        startupProbe:\n",
                "        {{- with $.Values.extraEnv }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
                "        startupProbe:\n",
            ),
            _block("        resources:\n", "resources"),
            *_volume("$.Values.queues.enabled", "queues", "/etc/tarragon-queues"),
            *_volume("$.Values.accelerators", "accelerators", "/etc/tarragon"),
        ],
        "ServiceMonitor/tarragon": [
            _labels("metrics.serviceMonitor.labels"),
            _value(
                "    interval: 30s\n",
                "metrics.serviceMonitor.interval",
                "{{ $.Values.metrics.serviceMonitor.interval }}",
            ),
        ],
        "PrometheusRule/tarragon": [_labels("metrics.prometheusRule.labels")],
        "ConfigMap/tarragon-accelerators": [
            _rest("    accelerators:\n", "    accelerators:\n      {{- toYaml $.Values.accelerators | nindent 6 }}\n")
        ],
        "ConfigMap/tarragon-queues": [
            _value("    fair: true\n", "queues.fair", "{{ $.Values.queues.fair }}"),
            _value("    preempt: true\n", "queues.preempt", "{{ $.Values.queues.preempt }}"),
            _rest(
                "    namespaces: {}\n", "    namespaces:\n      {{- toYaml $.Values.queues.namespaces | nindent 6 }}\n"
            ),
        ],
        "Secret/tarragon-progress": [
            _after(
                _LABELS,
                "  # Pods of running jobs trust the authority.\n  annotations:\n    helm.sh/resource-policy: keep\n",
            )
        ],
        "PodDisruptionBudget/tarragon": [
            _replace("apiVersion: policy/v1\n", 'apiVersion: {{ include "tarragon.policyVersion" $ }}\n'),
            _value(
                "  minAvailable: 1\n",
                "podDisruptionBudget.minAvailable",
                "{{ toYaml $.Values.podDisruptionBudget.minAvailable }}",
            ),
        ],
        "NetworkPolicy/tarragon": [
            _rest(
                "  # No policy can name it, and its address is another one in each cluster.",
                '  {{- include "tarragon.apiServer" $ | nindent 2 }}\n',
            )
        ],
    }
)
"""What in an object depends on a value, by kind and name."""


def _of(*scopes: Scope) -> list[Permission]:
    return [each for each in permissions() if each.scope in scopes]


def _operator_rules(*scopes: Scope) -> str:
    """The operator's rules for jobs, and in those scopes. What only a kind needs depends on whether that is wanted."""
    kinds = [(switch_of(framework), list(permissions_of(framework))) for framework in FRAMEWORKS]
    of_kinds = {each for _, needed in kinds for each in needed}
    blocks = ((switch, encoded(rules_of(needed))) for switch, needed in kinds)
    conditional = "".join(_if(switch, rules) if switch else rules for switch, rules in blocks)
    return conditional + encoded(rules_of(each for each in _of(*scopes) if each not in of_kinds))


def _permissions() -> str:
    """The operator's own permissions: in all namespaces, or in some."""
    leader = rules_of(_of(Scope.OPERATOR_NAMESPACE))
    everywhere = [
        role("ClusterRole", "tarragon", []) + _operator_rules(Scope.JOB_NAMESPACES, Scope.CLUSTER),
        binding("ClusterRole", "tarragon", OPERATOR_NAMESPACE),
        role(
            "Role",
            "tarragon-leader",
            rules_of(_of(Scope.OPERATOR_NAMESPACE, Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE)),
            OPERATOR_NAMESPACE,
        ),
        binding("Role", "tarragon-leader", OPERATOR_NAMESPACE),
        role("Role", "tarragon-rules", rules_of([FOR_AUTHENTICATED_USERS]), OPERATOR_NAMESPACE),
        binding("Role", "tarragon-rules", OPERATOR_NAMESPACE, EVERYBODY),
    ]
    somewhere = [
        role("Role", "tarragon", [], "{{ . }}") + _operator_rules(Scope.JOB_NAMESPACES),
        binding("Role", "tarragon", OPERATOR_NAMESPACE).replace(OPERATOR_NAMESPACE, "'{{ . }}'", 1),
    ]
    own = [
        role("Role", "tarragon-leader", leader, OPERATOR_NAMESPACE),
        binding("Role", "tarragon-leader", OPERATOR_NAMESPACE),
    ]
    each = "".join(f"---\n{_of_the_release(text)}" for text in somewhere)
    return (
        "{{- if $.Values.namespaces }}\n{{- range $.Values.namespaces }}\n"
        + each
        + "{{- end }}\n---\n"
        + "---\n".join(map(_of_the_release, own))
        + "{{- else }}\n"
        + "---\n".join(map(_of_the_release, everywhere))
        + "{{- end }}\n"
    )
