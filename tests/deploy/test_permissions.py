from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

from tarragon.frameworks.mpi.framework import MPI
from tarragon.operator.rbac import (
    FOR_AUTHENTICATED_USERS,
    LEASE_NAME,
    Scope,
    permissions,
    permissions_of,
    questions,
)
from tarragon.plan.config.published import RULES_CONFIG_MAP, SHARES_CONFIG_MAP

SENSITIVE = {
    ("", "configmaps"): {"create", "get", "list", "watch", "patch"},
    ("", "secrets"): {"create", "get", "patch"},
    ("", "serviceaccounts"): {"create", "get"},
    ("", "pods/exec"): {"create"},
    ("", "pods/log"): {"get"},
    ("rbac.authorization.k8s.io", "roles"): {"create", "get", "list", "watch", "patch"},
    ("rbac.authorization.k8s.io", "rolebindings"): {"create", "get"},
}
"""All verbs on what holds secrets, grants permissions or runs commands."""


def test_nothing_is_asked_wholesale() -> None:
    for permission in permissions():
        assert "*" not in (permission.group, permission.resource, *permission.verbs)
        assert not {"impersonate", "escalate", "bind", "deletecollection"} & {*permission.verbs}


def test_of_what_is_sensitive_no_more_verbs_are_asked_than_these() -> None:
    kinds = {resource.partition("/")[0] for _, resource in SENSITIVE} - {"pods"}
    asked: dict[tuple[str, str], set[str]] = defaultdict(set)
    for permission in permissions():
        kind, _, subresource = permission.resource.partition("/")
        if kind in kinds or (kind == "pods" and subresource):
            asked[permission.group, permission.resource] |= {*permission.verbs}

    assert asked == SENSITIVE


def test_no_secret_is_read_but_its_own_by_name() -> None:
    reading = [each for each in permissions() if each.resource == "secrets" and {*each.verbs} != {"create"}]

    assert [(each.names, each.scope) for each in reading] == [
        (("tarragon-progress",), Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE)
    ]


def test_what_only_mpijobs_need_can_be_left_out() -> None:
    """Without them, the operator creates scripts as ConfigMaps and reads its own anchors' logs, and that is all."""
    others = [each for each in permissions() if each not in {*permissions_of(MPI)} and not each.names]

    sensitive = [each for each in others if (each.group, each.resource) in SENSITIVE]
    assert [(each.resource, each.verbs) for each in sensitive] == [("configmaps", ("create",)), ("pods/log", ("get",))]


def test_logs_are_read_in_the_operators_own_namespace_only() -> None:
    reading = [each.scope for each in permissions() if each.resource == "pods/log"]

    assert reading == [Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE]


def test_what_the_page_about_security_says_is_not_asked_for_is_not() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    (listed,) = re.findall(r"^- No `\*`,(.*?)\.$", page, re.DOTALL | re.MULTILINE)
    absent = {word.lower() for word in re.findall(r"\bno (\w+)", listed)}

    assert "no reading of Secrets but its own" in listed
    assert not absent & {permission.resource for permission in permissions()}


def test_every_permission_has_its_reason_and_no_two_of_a_role_are_the_same() -> None:
    asked = [
        (each.scope, each.group, each.resource, verb) for each in permissions() for verb in each.verbs if not each.names
    ]

    assert all(each.reason and not each.reason.endswith(".") for each in permissions())
    assert len(asked) == len(set(asked))


def test_a_lease_that_is_there_may_be_touched_by_its_name_only() -> None:
    leases = [each for each in permissions() if each.resource == "leases" and "create" not in each.verbs]

    assert [each.names for each in leases if each.scope is Scope.OPERATOR_NAMESPACE] == [(LEASE_NAME,)]
    assert all(each.names and each.verbs == ("list",) for each in leases if each.scope is not Scope.OPERATOR_NAMESPACE)


def test_for_itself_the_operator_reads_and_changes_config_maps_by_their_names_only() -> None:
    [permission] = [
        each
        for each in permissions()
        if each.resource == "configmaps" and each.verbs != ("create",) and each not in {*permissions_of(MPI)}
    ]

    assert (permission.scope, permission.verbs, permission.names) == (
        Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE,
        ("get", "patch"),
        (RULES_CONFIG_MAP, SHARES_CONFIG_MAP),
    )
    assert (FOR_AUTHENTICATED_USERS.verbs, FOR_AUTHENTICATED_USERS.names) == (("get",), (RULES_CONFIG_MAP,))


def test_all_namespaces_are_asked_about_at_once_and_the_lease_where_it_is() -> None:
    asked = {str(question) for question in questions([], "tarragon-system")}

    assert {"patch tfjobs.kubeflow.org", "patch tfjobs/status.kubeflow.org", "list nodes", "create pods"} <= asked
    assert "patch leases.coordination.k8s.io tarragon in tarragon-system" in asked
    at_home = {Scope.OPERATOR_NAMESPACE, Scope.OPERATOR_NAMESPACE_IF_CLUSTER_WIDE}
    assert all(question.namespace == "" for question in questions([], "h") if question.permission.scope not in at_home)


def test_some_namespaces_are_asked_about_one_by_one_and_never_about_nodes() -> None:
    asked = [str(question) for question in questions(["a", "b"], "a")]

    assert {"create pods in a", "create pods in b", "create leases.coordination.k8s.io in a"} <= set(asked)
    assert "create leases.coordination.k8s.io in b" not in asked
    assert not [each for each in asked if "nodes" in each or RULES_CONFIG_MAP in each]


def test_a_question_is_put_as_the_server_understands_it() -> None:
    question, _ = [
        each for each in questions([], "h") if each.permission.resource == "tfjobs/status" and each.verb == "patch"
    ]

    assert question.access_review["kind"] == "SelfSubjectAccessReview"
    assert question.access_review["spec"]["resourceAttributes"] == {
        "group": "kubeflow.org",
        "resource": "tfjobs",
        "subresource": "status",
        "verb": "patch",
    }
