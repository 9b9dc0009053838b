"""Rules, by themselves: what one allows, what together they cover, and what a request asks for."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.api.paths import segments
from tarragon.localcluster.auth.attributes import Attributes, of_request
from tarragon.localcluster.auth.rules import Rule, rule_of, uncovered

VERBS = ("get", "list", "create")
GROUPS = ("", "apps")
RESOURCES = ("pods", "pods/log", "kites", "kites/scale", "kites/log")
NAMES = ("", "a", "b")
PATHS = ("/a", "/a/b", "/b")
EVERY = [
    *(
        Attributes(verb=verb, group=group, resource=resource.partition("/")[0], subresource=resource.partition("/")[2],
                   name=name)
        for verb, group, resource, name in itertools.product(VERBS, GROUPS, RESOURCES, NAMES)
    ),
    *(Attributes(verb=verb, path=path) for verb, path in itertools.product(VERBS, PATHS)),
]  # fmt: skip
"""Everything that can be asked, in a small world."""


def some(words: tuple[str, ...], *more: str) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from([*words, *more]), min_size=1, max_size=3, unique=True).map(tuple)


RULES = st.one_of(
    st.builds(
        Rule,
        verbs=some(VERBS, "*"),
        groups=some(GROUPS, "*"),
        resources=some(RESOURCES, "*", "*/log", "*/scale"),
        names=st.one_of(st.just(()), some(NAMES[1:])),
    ),
    st.builds(Rule, verbs=some(VERBS, "*"), urls=some(PATHS, "*", "/a*", "/a/*")),
)


@given(st.lists(RULES, max_size=4), st.lists(RULES, min_size=1, max_size=3))
def test_whoever_lacks_nothing_of_some_rules_may_do_all_that_they_allow(held: list[Rule], wanted: list[Rule]) -> None:
    if uncovered(held, wanted):
        return

    for asked in EVERY:
        if any(rule.allows(asked) for rule in wanted):
            assert any(rule.allows(asked) for rule in held), asked


@given(st.lists(RULES, min_size=1, max_size=3))
def test_nobody_lacks_what_they_have(rules: list[Rule]) -> None:
    assert uncovered(rules, rules) == []


@given(st.lists(RULES, max_size=3), st.lists(RULES, min_size=1, max_size=3))
def test_with_what_one_lacked_one_lacks_nothing(held: list[Rule], wanted: list[Rule]) -> None:
    assert uncovered([*held, *uncovered(held, wanted)], wanted) == []


def test_a_rule_reads_as_it_is_written_and_shows_as_go_prints_it() -> None:
    written = {"verbs": ["get"], "apiGroups": ["", "apps"], "resources": ["pods"], "resourceNames": ["a"]}

    rule = rule_of(written)

    assert rule.written() == written
    assert str(rule) == '{APIGroups:["" "apps"], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}'


@pytest.mark.parametrize(
    ("method", "url", "wanted"),
    [
        ("GET", "/api/v1/pods", Attributes(verb="list", version="v1", resource="pods")),
        (
            "HEAD",
            "/api/v1/namespaces/a/pods/p",
            Attributes(verb="get", version="v1", resource="pods", namespace="a", name="p"),
        ),
        (
            "GET",
            "/apis/apps/v1/deployments",
            Attributes(verb="list", group="apps", version="v1", resource="deployments"),
        ),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            Attributes(
                verb="patch",
                group="apps",
                version="v1",
                resource="deployments",
                subresource="scale",
                namespace="a",
                name="d",
            ),
        ),
        (
            "GET",
            "/api/v1/namespaces/a",
            Attributes(verb="get", version="v1", resource="namespaces", namespace="a", name="a"),
        ),
        (
            "PUT",
            "/api/v1/namespaces/a/status",
            Attributes(
                verb="update", version="v1", resource="namespaces", subresource="status", namespace="a", name="a"
            ),
        ),
        ("GET", "/api", Attributes(verb="get", path="/api")),
        ("GET", "/api/v1", Attributes(verb="get", path="/api/v1")),
        ("OPTIONS", "/apis/apps/v1", Attributes(verb="options", path="/apis/apps/v1")),
        ("GET", "/logs/a/b", Attributes(verb="get", path="/logs/a/b")),
    ],
)
def test_a_request_asks_for_what_its_method_and_path_say(method: str, url: str, wanted: Attributes) -> None:
    assert of_request(method, url, segments(url), {}) == wanted


@pytest.mark.parametrize(
    ("query", "verb", "name"),
    [
        ({}, "list", ""),
        ({"watch": "true"}, "watch", ""),
        ({"watch": "0"}, "list", ""),
        ({"fieldSelector": "metadata.name=a"}, "list", "a"),
        ({"fieldSelector": "status.phase=Running,metadata.name==a", "watch": "1"}, "watch", "a"),
        ({"fieldSelector": "metadata.name!=a"}, "list", ""),
    ],
)
def test_a_list_of_one_name_is_about_that_object(query: dict[str, str], verb: str, name: str) -> None:
    asked = of_request("GET", "/api/v1/pods", segments("/api/v1/pods"), query)

    assert (asked.verb, asked.name) == (verb, name)
