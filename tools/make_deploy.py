#!/usr/bin/env python3
"""Write the generated files in deploy/: the roles, from the table of permissions, and the files that use them.

python tools/make_deploy.py [--check]
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tarragon.frameworks.plugin import Framework
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.frameworks.sharepod.framework import SHAREPOD
from tarragon.operator.rbac import FOR_AUTHENTICATED_USERS, Permission, Scope, permissions, permissions_of
from tools.admission_policies import policies
from tools.generated_files import write_or_check

DEPLOY = Path(__file__).parent.parent / "deploy"
HEAD = "# Written by tools/make_deploy.py; do not edit.\n"
OPERATOR_NAMESPACE = "tarragon-system"
NAMESPACE_PLACEHOLDER = "default"
"""A namespace that kustomize replaces, because the subject of a binding must have one."""
OF_EACH = "# Install this in each namespace whose jobs the operator manages.\n"
KUSTOMIZATION = """\
# kubectl apply -k deploy
# It has no extension, so that `kubectl create -f deploy/` passes it over.
"""
RBAC = "rbac.authorization.k8s.io"
EVERYBODY = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
STATUS = {"/status": ("get", "patch", "update")}
SCALE = "/scale"
"""The subresource of kinds whose size can be changed."""

FORMER_ADMIN = """\
# An earlier version of this role let users with Kubernetes' role `admin` write the status of jobs. `kubectl apply` does
# not delete roles that are no longer in the file, so the role stays here without that permission and without the label
# that aggregates it to `admin`. (kubectl would change a role without rules at each apply.)
"""
OF_NO_ROLE = "# Not aggregated to another role: bind it to the users who need it.\n"

PROGRESS_LINES = (
    "        # Without this, programs can't report their progress: docs/operator.md#reports-of-progress.\n",
    "        - --progress-listen=:8443\n",
    "        - name: progress\n          containerPort: 8443\n",
)
"""What the operator of one namespace has not."""

Rule = tuple[Mapping[str, Any], str]


def main(arguments: list[str]) -> int:
    return write_or_check(dict(rendered()), arguments, "make_deploy.py")


def rendered() -> Iterator[tuple[Path, str]]:
    yield DEPLOY / "Kustomization", HEAD + kustomization()
    yield DEPLOY / "permissions.yaml", HEAD + documents(cluster_wide())
    yield DEPLOY / "users.yaml", HEAD + documents(of_users())
    yield (
        DEPLOY / "namespaced" / "role.yaml",
        HEAD + OF_EACH + role("Role", "tarragon", rules_of(_of(Scope.JOB_NAMESPACES))),
    )
    yield DEPLOY / "namespaced" / "permissions.yaml", HEAD + documents(in_its_own_namespace())
    yield DEPLOY / "namespaced" / "tarragon.yaml", HEAD + in_its_namespace((DEPLOY / "tarragon.yaml").read_text())
    admission = documents(map(_yaml, policies(OPERATOR_NAMESPACE)))
    yield DEPLOY / "components" / "admission-policy" / "policies.yaml", HEAD + admission
    for framework in FRAMEWORKS:
        if framework.required_permissions or framework is SHAREPOD:  # KubeShare needs its own definition of SharePod.
            folder = DEPLOY / "components" / f"without-{framework.resource.plural}"
            yield folder / "kustomization.yaml", HEAD + component_without(framework)


def kustomization() -> str:
    """What `kubectl apply -k deploy` installs: the CRD of every kind, and the operator."""
    crds = [f"crd-{framework.resource.full_name}.yaml" for framework in FRAMEWORKS]
    whole = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [*crds, "namespace.yaml", "permissions.yaml", "progress.yaml", "tarragon.yaml", "users.yaml"],
    }
    return KUSTOMIZATION + yaml.safe_dump(whole, sort_keys=False)


def cluster_wide() -> Iterator[str]:
    yield role("ClusterRole", "tarragon", rules_of(_of(Scope.JOB_NAMESPACES, Scope.CLUSTER)))
    yield binding("ClusterRole", "tarragon", OPERATOR_NAMESPACE)
    yield role(
        "Role",
        "tarragon-leader",
        rules_of(_of(Scope.OPERATOR_NAMESPACE, Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE)),
        OPERATOR_NAMESPACE,
    )
    yield binding("Role", "tarragon-leader", OPERATOR_NAMESPACE)
    yield role("Role", "tarragon-rules", rules_of([FOR_AUTHENTICATED_USERS]), OPERATOR_NAMESPACE)
    yield binding("Role", "tarragon-rules", OPERATOR_NAMESPACE, EVERYBODY)


def in_its_own_namespace() -> Iterator[str]:
    yield binding("Role", "tarragon", NAMESPACE_PLACEHOLDER)
    yield role("Role", "tarragon-leader", rules_of(_of(Scope.OPERATOR_NAMESPACE)))
    yield binding("Role", "tarragon-leader", NAMESPACE_PLACEHOLDER)


def of_users() -> Iterator[str]:
    """Roles that are aggregated to Kubernetes' own: users who may edit a namespace may edit its jobs."""
    for name, words, verbs in (
        ("view", "to read jobs", {"": READ, "/status": ("get",), SCALE: ("get",)}),
        ("edit", "to create, change and delete jobs", {"": WRITE, SCALE: ("patch", "update")}),
    ):
        rules = _rules_of_jobs(words, verbs)
        yield role("ClusterRole", f"tarragon-{name}", rules, labels={f"{RBAC}/aggregate-to-{name}": "true"})
    yield FORMER_ADMIN + role(
        "ClusterRole", "tarragon-admin", _rules_of_jobs("to read the status of jobs", {"/status": ("get",)})
    )
    words = "to repair a status by hand as a last resort; a user with this role can mark jobs as finished or admitted"
    yield OF_NO_ROLE + role("ClusterRole", "tarragon-status-editor", _rules_of_jobs(words, STATUS))


def _rules_of_jobs(words: str, verbs: Mapping[str, Sequence[str]]) -> list[Rule]:
    return [
        (_rule(framework.resource.group, f"{framework.resource.plural}{part}", allowed), words)
        for framework in FRAMEWORKS
        for part, allowed in verbs.items()
        if part != SCALE or "scale" in versions_of(framework)[0]["subresources"]
    ]


def rules_of(needed: Iterable[Permission]) -> list[Rule]:
    return [(_rule(each.group, each.resource, each.verbs, each.names), each.reason) for each in needed]


def role(
    kind: str, name: str, rules: Sequence[Rule], namespace: str = "", labels: Mapping[str, str] | None = None
) -> str:
    """A role, with the reason of each rule as a comment above it."""
    head = {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": _metadata(name, namespace, labels or {}),
    }
    return f"{_yaml(head)}rules:\n{encoded(rules)}"


def encoded(rules: Sequence[Rule]) -> str:
    """The rules as YAML, each with its reason as a comment above it; an equal reason is not repeated."""
    before = ["", *(reason for _, reason in rules)]
    return "".join(
        f"{'' if reason == previous else _comment(reason)}{_yaml([rule])}"
        for (rule, reason), previous in zip(rules, before, strict=False)
    )


def binding(kind: str, name: str, home: str, subject: Mapping[str, str] | None = None) -> str:
    """A binding of a role to a subject, by default to the operator's own service account."""
    own = {"kind": "ServiceAccount", "name": "tarragon", "namespace": home}
    namespace = "" if kind == "ClusterRole" or home == NAMESPACE_PLACEHOLDER else home
    return _yaml(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": _metadata(name, namespace, {}),
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [own if subject is None else subject],
        }
    )


def in_its_namespace(text: str) -> str:
    """The operator's manifest without head and namespace, with the option that limits it to its own namespace.

    It takes no reports of progress: no Role of a namespace can allow it to review tokens.
    """
    body = text[text.index("apiVersion:") :].replace(f"  namespace: {OPERATOR_NAMESPACE}\n", "")
    for line in PROGRESS_LINES:
        assert line in body, line  # noqa: S101 - both files are ours
        body = body.replace(line, "")
    here = "        - name: MY_POD_NAMESPACE\n          valueFrom:\n            fieldRef:\n"
    here += "              apiVersion: v1\n              fieldPath: metadata.namespace\n"
    return body.replace("        env:\n", f"        env:\n{here}").replace(
        "        - operator\n", "        - operator\n        - --namespace=$(MY_POD_NAMESPACE)\n"
    )


def component_without(framework: Framework) -> str:
    """A kustomize component that leaves out a kind: its CRD, and what the operator may do only for its jobs.

    Rules are addressed by index, as their list has no merge key. Each is tested before it is removed, so that the
    component fails if it is applied to roles of another version, or after one that has removed rules above them. The
    rules of jobs come first in both roles.
    """
    own = {*permissions_of(framework)}
    indexed = [*enumerate(_of(Scope.JOB_NAMESPACES))]
    removals = [
        operation
        for index, permission in reversed(indexed)
        if permission in own
        for [(rule, _)] in [rules_of([permission])]
        for operation in (
            {"op": "test", "path": f"/rules/{index}", "value": rule},
            {"op": "remove", "path": f"/rules/{index}"},
        )
    ]
    crd = {"kind": "CustomResourceDefinition", "name": framework.resource.full_name}
    deletion = {
        "$patch": "delete",
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": crd["kind"],
        "metadata": {"name": crd["name"]},
    }
    patches = [(crd, deletion), *(({"kind": kind, "name": "tarragon"}, removals) for kind in ("ClusterRole", "Role"))]
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [{"target": target, "patch": _yaml(patch)} for target, patch in patches],
    }
    why = (
        f"# For installations that run no {framework.kind}s: neither the kind nor the permissions that only it needs.\n"
    )
    return why + _yaml(component)


def versions_of(framework: Framework) -> list[Any]:
    crd: dict[str, Any] = framework.crd()
    versions: list[Any] = crd["spec"]["versions"]
    return versions


def documents(parts: Iterable[str]) -> str:
    return "---\n".join(parts)


def _of(*scopes: Scope) -> list[Permission]:
    return [each for each in permissions() if each.scope in scopes]


def _rule(group: str, resource: str, verbs: Sequence[str], names: Sequence[str] = ()) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
    return {**rule, "resourceNames": list(names)} if names else rule


def _metadata(name: str, namespace: str, labels: Mapping[str, str]) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "labels": {"app.kubernetes.io/name": "tarragon", **labels}}


def _comment(reason: str) -> str:
    return textwrap.indent(textwrap.fill(f"{reason[0].upper()}{reason[1:]}.", 110), "# ") + "\n"


class _Plain(yaml.SafeDumper):
    """Writes YAML without anchors, lists of strings in one line, and multi-line strings as blocks."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


_Plain.add_representer(
    list,
    lambda dumper, values: dumper.represent_sequence(
        "tag:yaml.org,2002:seq", values, flow_style=all(isinstance(value, str) for value in values)
    ),
)
_Plain.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _yaml(value: Any) -> str:
    return yaml.dump(value, Dumper=_Plain, sort_keys=False, width=120)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
