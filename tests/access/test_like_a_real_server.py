"""What roles allow, and who may write them: the embedded server and a real one are asked the same."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tarragon.base.clock import SystemClock
from tarragon.client.http.client import Http
from tests.access.both import (
    ACCESS_REVIEWS,
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    PATIENCE,
    PODS,
    RBAC,
    ROLES,
    RULES_REVIEWS,
    Both,
    binding,
    kind,
    person,
    role,
    rule,
    told,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

Json = dict[str, Any]

QUESTIONS = 600
VERBS = ("get", "list", "watch", "create", "delete", "deletecollection", "impersonate", "*")
GROUPS = ("", "apps", "example.com", "*")
RESOURCES = ("pods", "pods/log", "deployments", "deployments/scale", "*/scale", "*/log", "*", "kites")
NAMES = ("a", "b", "")
URLS = ("/metrics", "/metrics/*", "/healthz", "/a*", "*", "/a/b")
PATHS = ("/metrics", "/metrics/x", "/healthz", "/a", "/a/b", "/abc", "/b")


class Scene:
    """Random roles, random bindings, and random questions about them, all with the mark of one test."""

    def __init__(self, mark: str) -> None:
        self.dice = random.Random(20_261_121)
        self.mark = mark
        self.namespaces = [f"{mark}-{letter}" for letter in "xy"]
        self.users = [f"{mark}-{name}" for name in ("ann", "bob", "eve", "dan")]
        self.teams = [f"{mark}-{name}" for name in ("team", "crew")]

    def roles(self) -> list[tuple[Any, Json]]:
        of_cluster = [(CLUSTER_ROLES, role(f"{self.mark}-{n}", *self._rules(has_urls=True))) for n in range(14)]
        of_namespaces = [
            (ROLES, role(f"r{n}", *self._rules(has_urls=False), namespace=namespace))
            for namespace in self.namespaces
            for n in range(8)
        ]
        return [*of_cluster, *of_namespaces]

    def bindings(self) -> list[tuple[Any, Json]]:
        of_cluster = [
            (CLUSTER_BINDINGS, binding(f"{self.mark}-{n}", f"{self.mark}-{self.dice.randrange(15)}", *self._subjects()))
            for n in range(8)
        ]
        return [*of_cluster, *(self._binding(namespace, n) for namespace in self.namespaces for n in range(10))]

    def question(self) -> Json:
        dice = self.dice
        who = {"user": self._somebody(), "groups": dice.sample(self.teams, dice.randrange(3))}
        if dice.random() < 0.2:
            path = {"path": dice.choice(PATHS), "verb": dice.choice(VERBS)}
            return {"spec": {**who, "nonResourceAttributes": path}}
        resource, _, subresource = dice.choice(RESOURCES).partition("/")
        asked = {
            "verb": dice.choice(VERBS),
            "group": dice.choice(GROUPS),
            "resource": resource,
            "subresource": subresource,
            "namespace": dice.choice([*self.namespaces, ""]),
            "name": dice.choice(NAMES),
        }
        return {"spec": {**who, "resourceAttributes": asked}}

    def _rules(self, *, has_urls: bool) -> list[Json]:
        dice = self.dice
        rules = []
        for _ in range(dice.randrange(1, 4)):
            if has_urls and dice.random() < 0.3:
                rules.append({"verbs": self._some(VERBS), "nonResourceURLs": self._some(URLS)})
            else:
                names = {"resourceNames": self._some(NAMES[:2])} if dice.random() < 0.3 else {}
                groups, resources = self._some(GROUPS), self._some(RESOURCES)
                rules.append({"verbs": self._some(VERBS), "apiGroups": groups, "resources": resources, **names})
        return rules

    def _some(self, words: tuple[str, ...]) -> list[str]:
        return self.dice.sample(words, self.dice.randrange(1, min(4, len(words) + 1)))

    def _binding(self, namespace: str, number: int) -> tuple[Any, Json]:
        is_of_cluster = self.dice.random() < 0.4
        name = f"{self.mark}-{self.dice.randrange(15)}" if is_of_cluster else f"r{self.dice.randrange(9)}"
        body = binding(f"b{number}", name, *self._subjects(), namespace=namespace, is_of_cluster=is_of_cluster)
        return BINDINGS, body

    def _subjects(self) -> list[Json]:
        dice = self.dice
        account = {"kind": "ServiceAccount", "name": "robot", "namespace": dice.choice(self.namespaces)}
        team = {"apiGroup": RBAC, "kind": "Group", "name": dice.choice(self.teams)}
        return dice.sample([person(dice.choice(self.users)), team, account], dice.randrange(1, 3))

    def _somebody(self) -> str:
        robots = [f"system:serviceaccount:{namespace}:robot" for namespace in self.namespaces]
        return self.dice.choice([*self.users, *robots])


async def asked(client: Http, question: Json) -> tuple[bool, set[str]]:
    """Whether it is allowed, and if not, what is said of missing roles; which of several bindings allows something
    is a matter of luck.
    """
    answer: Json = (await client.create(ACCESS_REVIEWS, question))["status"]
    reason = answer.get("reason", "")
    faults = set(reason.removeprefix("RBAC: ").strip("[]").split(", ")) if not answer["allowed"] else set()
    return answer["allowed"], faults


async def test_hundreds_of_questions_get_the_answers_of_a_real_server(servers: Both, mark: str) -> None:
    scene = Scene(mark)
    for namespace in scene.namespaces:
        await servers.namespace(namespace)
    await servers.prepare(*scene.roles())
    await servers.prepare(*scene.bindings())
    questions = [scene.question() for _ in range(QUESTIONS)]
    real, ours = await servers.clients()
    await _known(real, mark)

    theirs = await asyncio.gather(*(asked(real, question) for question in questions))
    mine = await asyncio.gather(*(asked(ours, question) for question in questions))

    different = [(q, t, m) for q, t, m in zip(questions, theirs, mine, strict=True) if t != m]
    assert not different, different[:3]
    allowed = sum(is_allowed for is_allowed, _ in theirs)
    assert QUESTIONS * 0.1 < allowed < QUESTIONS * 0.9
    assert any(faults - {""} for _, faults in theirs)


async def _known(real: Http, mark: str) -> None:
    """A real server's authorizer has a cache of each kind: wait until each of them knows what was written last."""
    last, of = f"{mark}-last", "default"
    await real.create(CLUSTER_ROLES, role(last, rule("get", "kites")))
    await real.create(CLUSTER_BINDINGS, binding(last, last, person(last)))
    await real.create(ROLES, role(last, rule("list", "kites"), namespace=of))
    await real.create(BINDINGS, binding(last, last, person(last), namespace=of, is_of_cluster=False))
    for verb in ("get", "list"):
        wanted = {"spec": {"user": last, "resourceAttributes": {"verb": verb, "resource": "kites", "namespace": of}}}
        async with asyncio.timeout(PATIENCE):
            while not (await asked(real, wanted))[0]:
                await SystemClock().sleep(0.01)


SECRETS_OF_A = rule("get list", "secrets", names="a b")
ATTEMPTS = [
    pytest.param(ROLES, role("new", rule("get list", "pods deployments", "- apps")), id="what one has in no part"),
    pytest.param(ROLES, role("new", rule("get", "configmaps")), id="what one has"),
    pytest.param(ROLES, role("new", rule("get watch delete", "configmaps")), id="what one has in part"),
    pytest.param(ROLES, role("new", rule("x", "a/b c", "apps batch", names="n m")), id="names and groups"),
    pytest.param(ROLES, role("new", rule("*", "*", "*")), id="everything"),
    pytest.param(ROLES, role("new", SECRETS_OF_A), id="two names of which one has one"),
    pytest.param(CLUSTER_ROLES, role("MARK", rule("get", "configmaps")), id="in the whole cluster"),
    pytest.param(
        CLUSTER_ROLES, role("MARK", {"verbs": ["get", "put"], "nonResourceURLs": ["/metrics", "/a/*"]}), id="paths"
    ),
    pytest.param(
        CLUSTER_ROLES,
        {"metadata": {"name": "MARK"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}},
        id="a role made of others",
    ),
    pytest.param(BINDINGS, binding("new", "MARK", person("x")), id="a role with more than one has"),
    pytest.param(BINDINGS, binding("new", "held", person("x"), is_of_cluster=False), id="a role that one has"),
    pytest.param(BINDINGS, binding("new", "given", person("x"), is_of_cluster=False), id="a role that one may bind"),
    pytest.param(BINDINGS, binding("new", "missing", person("x"), is_of_cluster=False), id="a role that is not there"),
    pytest.param(CLUSTER_BINDINGS, binding("MARK", "MARK", person("x")), id="a role for the whole cluster"),
    pytest.param(PODS, {"metadata": {"name": "p"}}, id="another kind"),
]


@pytest.mark.parametrize(("resource", "body"), ATTEMPTS)
async def test_nobody_gives_what_they_do_not_have_in_the_same_words(
    servers: Both, mark: str, resource: Any, body: Json
) -> None:
    user, namespace = f"{mark}-user", f"{mark}-ns"
    writes = rule("get create update patch", "roles rolebindings clusterroles clusterrolebindings", RBAC)
    await servers.namespace(namespace)
    await servers.prepare(
        (CLUSTER_ROLES, role(f"{mark}-writes", writes)),
        (CLUSTER_BINDINGS, binding(f"{mark}-writes", f"{mark}-writes", person(user))),
        (ROLES, role("held", rule("get watch", "configmaps"), rule("get", "secrets", names="a"), namespace=namespace)),
        (BINDINGS, binding("held", "held", person(user), namespace=namespace, is_of_cluster=False)),
        (CLUSTER_ROLES, role(f"{mark}-more", rule("get list", "configmaps nodes"), SECRETS_OF_A)),
        (ROLES, role("given", rule("delete", "nodes"), namespace=namespace)),
        (ROLES, role("binder", rule("bind", "roles", RBAC, names="given"), namespace=namespace)),
        (BINDINGS, binding("binder", "binder", person(user), namespace=namespace, is_of_cluster=False)),
    )
    attempt = _marked(
        body, f"{mark}-more" if "roleRef" in body else f"{mark}-new", namespace if resource.namespaced else ""
    )
    administrator, _ = await servers.clients()
    await _known(administrator, mark)

    theirs, ours = [await told(client, resource, attempt) for client in await servers.clients(user)]

    assert ours == theirs


def _marked(body: Json, name: str, namespace: str) -> Json:
    own = {"namespace": namespace} if namespace else {}
    given = body["metadata"]["name"]
    marked = {**body, "metadata": {"name": name if given == "MARK" else given, **own}}
    if body.get("roleRef", {}).get("name") == "MARK":
        marked["roleRef"] = {**body["roleRef"], "name": name}
    return marked


async def test_the_rules_that_one_has_are_told_as_a_real_server_tells_them(servers: Both, mark: str) -> None:
    user, path = f"{mark}-user", {"verbs": ["get"], "nonResourceURLs": ["/x"]}
    await servers.prepare(
        (CLUSTER_ROLES, role(f"{mark}-a", rule("get", "pods", names="x"), path)),
        (CLUSTER_BINDINGS, binding(f"{mark}-a", f"{mark}-a", person(user))),
        (CLUSTER_BINDINGS, binding(f"{mark}-b", f"{mark}-missing", person(user))),
    )
    administrator, _ = await servers.clients()
    await _known(administrator, mark)

    real, ours = [
        await client.create(RULES_REVIEWS, {"spec": {"namespace": "default"}}) for client in await servers.clients(user)
    ]

    own = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["x"]}
    for answer in (real["status"], ours["status"]):
        assert own in answer["resourceRules"]
        assert path in answer["nonResourceRules"]
        assert not answer["incomplete"]
    assert ours["status"]["evaluationError"] == real["status"]["evaluationError"]


REVIEWS = "selfsubjectaccessreviews SelfSubjectAccessReview", "subjectaccessreviews SubjectAccessReview"
NONSENSE: list[Json] = [
    {"spec": {}},
    {"spec": {"user": "a", "resourceAttributes": {"verb": "get"}, "nonResourceAttributes": {"path": "/"}}},
]


@pytest.mark.parametrize("named", REVIEWS)
@pytest.mark.parametrize("body", NONSENSE)
async def test_a_review_that_asks_nothing_is_invalid(servers: Both, named: str, body: Json) -> None:
    plural, name = named.split()
    review = kind("authorization.k8s.io", plural, name)

    theirs, ours = [await told(client, review, body) for client in await servers.clients()]

    assert ours[0] == theirs[0] == 422
    assert _fields(ours[1]) == _fields(theirs[1])


def _fields(message: str) -> set[str]:
    """Later servers name the kind, and values as JSON has them."""
    return {word.strip("[") for word in message.split() if word.strip("[").startswith("spec.")}
