#!/usr/bin/env python3
"""Write what in deploy/ follows from the code: the roles from the table of permissions, and what is made from those.

python tools/make_deploy.py [--check]
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tarragon.frameworks.catalog import FRAMEWORKS
from tarragon.frameworks.tensorflow.fields import Spec
from tarragon.operator.rbac import FOR_EVERYBODY, Permission, Scope, permissions
from tools.written import write_or_check

DEPLOY = Path(__file__).parent.parent / "deploy"
HEAD = "# Written by tools/make_deploy.py; do not edit.\n"
HOME = "tarragon-system"
NAMESPACED = "default"
"""A namespace for kustomize to replace: a binding's subject must have one."""
OF_EACH = "# In each namespace whose jobs are kept.\n"
RBAC = "rbac.authorization.k8s.io"
EVERYBODY = {"apiGroup": RBAC, "kind": "Group", "name": "system:authenticated"}

READ = ("get", "list", "watch")
WRITE = ("create", "delete", "deletecollection", "patch", "update")
STATUS = {"/status": ("get", "patch", "update")}

FORMER_ADMIN = """\
# It let whoever has Kubernetes' role `admin` write the status of jobs. `kubectl apply` removes no role that is not in
# the file any more, so it stays, without that right and without the label by which `admin` takes it in. (Without any
# rule, kubectl would change it at each apply.)
"""
OF_NO_ROLE = "# Part of no other role: bind it to whoever is to have it.\n"

Rule = tuple[Mapping[str, Any], str]

_LEAST, _MOST = (f"self.{name.value.replace('-', '__dash__')}" for name in (Spec.MIN_INSTANCES, Spec.MAX_INSTANCES))

# What a server of 1.25 or newer can say at once, rather than the operator later. A job of any generation must pass.
CEL_RULES: Mapping[str, str] = {
    "has(self.tfReplicaSpecs) || has(self.replicaSpecs) || has(self.replica_specs)": "it has no replicas",
    "!has(self.tfReplicaSpecs) || !('Chief' in self.tfReplicaSpecs && 'Master' in self.tfReplicaSpecs)": (
        "Chief and Master are two words for one replica"
    ),
    # CEL writes a dash in a field's name as __dash__.
    f"!has({_MOST}) || !has({_LEAST}) || {_LEAST} <= {_MOST}": "min-instances must not be more than max-instances",
}


def main(arguments: list[str]) -> int:
    return write_or_check(dict(rendered()), arguments, "make_deploy.py")


def rendered() -> Iterator[tuple[Path, str]]:
    yield DEPLOY / "permissions.yaml", HEAD + documents(cluster_wide())
    yield DEPLOY / "users.yaml", HEAD + documents(of_users())
    yield DEPLOY / "namespaced" / "role.yaml", HEAD + OF_EACH + role("Role", "tarragon", rules_of(_of(Scope.JOBS)))
    yield DEPLOY / "namespaced" / "permissions.yaml", HEAD + documents(in_its_own_namespace())
    yield DEPLOY / "namespaced" / "tarragon.yaml", HEAD + in_its_namespace((DEPLOY / "tarragon.yaml").read_text())
    yield DEPLOY / "components" / "rules" / "kustomization.yaml", HEAD + cel_component()


def cluster_wide() -> Iterator[str]:
    yield role("ClusterRole", "tarragon", rules_of(_of(Scope.JOBS, Scope.CLUSTER)))
    yield binding("ClusterRole", "tarragon", HOME)
    yield role("Role", "tarragon-leader", rules_of(_of(Scope.HOME, Scope.PLACING)), HOME)
    yield binding("Role", "tarragon-leader", HOME)
    yield role("Role", "tarragon-rules", rules_of([FOR_EVERYBODY]), HOME)
    yield binding("Role", "tarragon-rules", HOME, EVERYBODY)


def in_its_own_namespace() -> Iterator[str]:
    yield binding("Role", "tarragon", NAMESPACED)
    yield role("Role", "tarragon-leader", rules_of(_of(Scope.HOME)))
    yield binding("Role", "tarragon-leader", NAMESPACED)


def of_users() -> Iterator[str]:
    """Kubernetes' own roles take these in: who may edit in a namespace may edit its jobs."""
    for name, words, verbs in (
        ("view", "to look at jobs", {"": READ, "/status": ("get",), "/scale": ("get",)}),
        ("edit", "to make, change and remove jobs", {"": WRITE, "/scale": ("patch", "update")}),
    ):
        rules = _rules_of_jobs(words, verbs)
        yield role("ClusterRole", f"tarragon-{name}", rules, labels={f"{RBAC}/aggregate-to-{name}": "true"})
    yield FORMER_ADMIN + role(
        "ClusterRole", "tarragon-admin", _rules_of_jobs("to look at a status", {"/status": ("get",)})
    )
    words = "to mend a status by hand, when all else fails; whoever has this can say that a job has ended, or may run"
    yield OF_NO_ROLE + role("ClusterRole", "tarragon-status-editor", _rules_of_jobs(words, STATUS))


def _rules_of_jobs(words: str, verbs: Mapping[str, Sequence[str]]) -> list[Rule]:
    return [
        (_rule(framework.resource.group, f"{framework.resource.plural}{part}", allowed), words)
        for framework in FRAMEWORKS
        for part, allowed in verbs.items()
    ]


def rules_of(needed: Iterable[Permission]) -> list[Rule]:
    return [(_rule(each.group, each.resource, each.verbs, each.names), each.reason) for each in needed]


def role(
    kind: str, name: str, rules: Sequence[Rule], namespace: str = "", labels: Mapping[str, str] | None = None
) -> str:
    """With the reason of each rule above it."""
    head = {
        "apiVersion": f"{RBAC}/v1",
        "kind": kind,
        "metadata": _metadata(name, namespace, labels or {}),
    }
    before = ["", *(reason for _, reason in rules)]
    written = "".join(
        f"{'' if reason == told else _comment(reason)}{_yaml([rule])}"
        for (rule, reason), told in zip(rules, before, strict=False)
    )
    return f"{_yaml(head)}rules:\n{written}"


def binding(kind: str, name: str, home: str, subject: Mapping[str, str] | None = None) -> str:
    """To the operator's own account, if nobody else is named."""
    own = {"kind": "ServiceAccount", "name": "tarragon", "namespace": home}
    namespace = "" if kind == "ClusterRole" or home == NAMESPACED else home
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
    """Without the head of the file, without a namespace, and told to keep to its own."""
    body = text[text.index("apiVersion:") :].replace(f"  namespace: {HOME}\n", "")
    here = "        - name: MY_POD_NAMESPACE\n          valueFrom:\n            fieldRef:\n"
    here += "              apiVersion: v1\n              fieldPath: metadata.namespace\n"
    return body.replace("        env:\n", f"        env:\n{here}").replace(
        "        - operator\n", "        - operator\n        - --namespace=$(MY_POD_NAMESPACE)\n"
    )


def cel_component() -> str:
    """A patch of each version by its place: kustomize knows no keys of the lists in a CRD."""
    rules = [{"rule": rule, "message": message} for rule, message in CEL_RULES.items()]
    place = "schema/openAPIV3Schema/properties/spec/x-kubernetes-validations"
    component = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [
            {
                "target": {"kind": "CustomResourceDefinition", "name": crd["metadata"]["name"]},
                "patch": yaml.dump(
                    [
                        {"op": "add", "path": f"/spec/versions/{number}/{place}", "value": rules}
                        for number in range(len(crd["spec"]["versions"]))
                    ],
                    Dumper=_Plain,
                    sort_keys=False,
                    width=160,
                ),
            }
            for crd in (framework.crd() for framework in FRAMEWORKS)
        ],
    }
    why = "# Rules that the API server checks itself. Kubernetes 1.25 or newer: older ones refuse the CRD with them.\n"
    return why + yaml.dump(component, Dumper=_Plain, sort_keys=False, width=160)


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
    """Without anchors; lists of words in one line, texts of several lines as such."""

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
