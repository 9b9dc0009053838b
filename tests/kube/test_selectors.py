from __future__ import annotations

import re

import pytest

from tarragon.kube.selectors import field_paths, label_selector_as_predicate, parse_field_selector, parse_label_selector

WEB = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web, db),tier=front", True),
        ("app notin (web)", False),
        ("missing notin (web)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app=", False),
        ("training.kubeflow.org/job-name=a", False),
    ],
)
def test_a_label_selector_chooses_as_kubectl_does(selector: str, matches: bool) -> None:  # noqa: FBT001 - the expectation
    assert parse_label_selector(selector)(WEB) is matches


NO_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ("app in web", "unable to parse requirement: found 'web' expected: '('"),
        ("=x", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("app in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a>1,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a>b", 'unable to parse requirement: values[0]: Invalid value: "b": ' + NO_INTEGER),
    ],
)
def test_a_selector_that_cannot_be_read_is_refused_in_a_real_servers_words(selector: str, words: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        parse_label_selector(selector)


def test_a_field_selector_compares_paths() -> None:
    chosen = parse_field_selector("metadata.name=a,status.phase!=Running")
    assert chosen({"metadata.name": "a", "status.phase": "Pending"})
    assert not chosen({"metadata.name": "a", "status.phase": "Running"})
    assert field_paths("metadata.name=a,status.phase!=Running") == {"metadata.name", "status.phase"}


def test_match_expressions_mean_the_same_as_their_text() -> None:
    chosen = label_selector_as_predicate(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["front", "back"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert chosen(WEB)
    assert not chosen({**WEB, "old": ""})
