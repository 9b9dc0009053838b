"""Checks the permissions of a user and of the operator in a cluster, verb by verb. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from tarragon.cli.output.finding import Finding
from tarragon.cli.output.words import joined
from tarragon.frameworks.registry import FRAMEWORKS
from tarragon.kube.core import EVENTS, PODS
from tarragon.operator.rbac import Permission, PermissionQuestion, Scope, questions

_BIND = "once Tarragon is installed the ClusterRole `edit` allows it: ask the cluster administrator for it"

USER_PERMISSIONS = (
    *(
        Permission(
            group=framework.resource.group,
            resource=framework.resource.plural,
            verbs=("create", "get", "list", "watch", "patch", "delete"),
            scope=Scope.JOB_NAMESPACES,
            reason="run submit list get describe wait suspend resume scale delete",
        )
        for framework in FRAMEWORKS
    ),
    Permission(
        group="", resource=PODS.plural, verbs=("list", "watch"), scope=Scope.JOB_NAMESPACES, reason="run describe logs"
    ),
    Permission(group="", resource="pods/log", verbs=("get",), scope=Scope.JOB_NAMESPACES, reason="run logs"),
    Permission(group="", resource=EVENTS.plural, verbs=("list",), scope=Scope.JOB_NAMESPACES, reason="describe"),
)
"""The permissions that the command line uses; `reason` names the commands that need all of the verbs."""

_COMMANDS_BY_VERB: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "create": ("run", "submit"),
        "get": ("get", "describe", "why", "logs"),
        "list": ("list", "top"),
        "watch": ("run", "wait", "list -w"),
        "patch": ("suspend", "resume", "scale"),
        "delete": ("delete",),
    }
)
"""The commands that need each verb on jobs. A read-only user thus reads that `run` is refused, not `list`."""

_APPLY_ROLES = "install the operator's roles again (`tarragon docs install#upgrade`)"
_REQUIRED_KINDS = frozenset(
    (framework.resource.group, framework.resource.plural) for framework in FRAMEWORKS if not framework.is_crd_optional
)

Answers = Mapping[PermissionQuestion, bool]


def user_questions(namespace: str) -> Sequence[PermissionQuestion]:
    return [
        PermissionQuestion(permission=each, verb=verb, namespace=namespace)
        for each in USER_PERMISSIONS
        for verb in each.verbs
    ]


def operator_questions(home: str) -> Sequence[PermissionQuestion]:
    """Return the permissions of an operator that manages all namespaces."""
    return list(questions([], home))


def user_findings(answers: Answers) -> Iterator[Finding]:
    """Yield one finding for each resource. Missing permissions on jobs are errors, others warnings."""
    for permission, allowed, refused in _grouped(answers):
        kind = _resource_name(permission)
        if not refused:
            yield Finding("ok", "you", f"may {joined(allowed)} {kind}")
            continue
        may = f", only {joined(allowed)}" if allowed else ""
        is_job = (permission.group, permission.resource) in _REQUIRED_KINDS
        text = f"may not {joined(refused)} {kind}{may}: needed by {joined(_commands(permission, refused))}"
        makes_impossible = is_job and set(refused) - {"delete", "patch"}
        yield Finding("error" if makes_impossible else "warning", "you", text, _BIND)


def _commands(permission: Permission, refused: Sequence[str]) -> Sequence[str]:
    if all(verb in _COMMANDS_BY_VERB for verb in permission.verbs) and "create" in permission.verbs:
        return list(dict.fromkeys(command for verb in refused for command in _COMMANDS_BY_VERB[verb]))
    return permission.reason.split()


def operator_findings(answers: Answers) -> Iterator[Finding]:
    """Yield one finding if nothing is missing, otherwise one for each resource with missing permissions."""
    lacking = list(_lacking(answers))
    if not lacking:
        yield Finding("ok", "operator", f"you may run it: you have all {len(answers)} permissions")
    for permission, verbs in lacking:
        missing = f"no permission to {verbs} {_resource_name(permission)}, {permission.reason}"
        consequence = permission.consequence
        text = f"{missing}; without it, {consequence}" if consequence else f"you may not run it: {missing}"
        yield Finding("warning", "operator", text, "run it with its own service account (`tarragon docs install`)")


def service_account_findings(account: str, answers: Answers) -> Iterator[Finding]:
    """Yield one finding if the operator's service account may do all it needs, otherwise one for each resource."""
    lacking = list(_lacking(answers))
    if not lacking:
        yield Finding("ok", "account", f"{account} has all {len(answers)} permissions that the operator needs")
    for permission, verbs in lacking:
        text = f"{account} may not {verbs} {_resource_name(permission)}, {permission.reason}"
        consequence = permission.consequence
        level: Literal["warning", "error"] = "warning" if consequence else "error"
        yield Finding(level, "account", f"{text}; without it, {consequence or 'jobs are not managed'}", _APPLY_ROLES)


def _lacking(answers: Answers) -> Iterator[tuple[Permission, str]]:
    """Yield each permission that is refused in part, with the refused verbs as words."""
    for permission, _, refused in _grouped(answers):
        if refused:
            yield permission, joined(list(dict.fromkeys(refused)))


def _grouped(answers: Answers) -> Iterator[tuple[Permission, Sequence[str], Sequence[str]]]:
    """Yield each permission with its allowed and its refused verbs."""
    for permission in dict.fromkeys(question.permission for question in answers):
        mine = {question: yes for question, yes in answers.items() if question.permission == permission}
        refused = [question.verb for question, yes in mine.items() if not yes]
        yield permission, [question.verb for question, yes in mine.items() if yes], refused


def _resource_name(permission: Permission) -> str:
    """Spell a resource as kubectl does: `tfjobs.kubeflow.org/status`."""
    resource, slash, below = permission.resource.partition("/")
    return f"{resource}.{permission.group}{slash}{below}" if permission.group else permission.resource
