"""What clients are told is served, and how that changes while the server runs."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.localcluster.apiserver import discovery
from tarragon.localcluster.apiserver.http.accept import PLAIN, Representation, negotiate
from tarragon.localcluster.kinds.registry import KindRegistry, ScalePaths, ServedKind


def widgets(version: str) -> ServedKind:
    return ServedKind(
        group="example.dev",
        version=version,
        plural="widgets",
        kind="Widget",
        singular="widget",
        short_names=("wg",),
        categories=("all",),
        subresources=("status", "scale"),
        scale=ScalePaths(spec_replicas=("spec", "replicas"), status_replicas=("status", "replicas")),
        is_custom=True,
    )


@pytest.fixture
def registry() -> KindRegistry:
    registry = KindRegistry()
    registry.set_custom("widgets.example.dev", [widgets("v2"), widgets("v1")])
    return registry


def resources(listed: dict[str, Any] | None) -> dict[str, Any]:
    assert listed is not None
    return {each["name"]: each for each in listed["resources"]}


def test_the_core_group_is_called_v1_and_nothing_else(registry: KindRegistry) -> None:
    listed = discovery.resource_list(registry, "", "v1")

    assert listed is not None
    assert listed["groupVersion"] == "v1"
    pods = resources(listed)["pods"]
    assert (pods["kind"], pods["namespaced"], pods["shortNames"]) == ("Pod", True, ["po"])
    assert "watch" in pods["verbs"]


def test_subresources_say_the_kind_they_speak(registry: KindRegistry) -> None:
    core = resources(discovery.resource_list(registry, "", "v1"))
    custom = resources(discovery.resource_list(registry, "example.dev", "v1"))

    assert (core["pods/status"]["kind"], core["pods/status"]["verbs"]) == ("Pod", ["get", "patch", "update"])
    assert (core["pods/log"]["kind"], core["pods/log"]["verbs"]) == ("Pod", ["get"])
    assert (core["pods/binding"]["kind"], core["pods/binding"]["verbs"]) == ("Binding", ["create"])
    scale = custom["widgets/scale"]
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")


def test_the_first_version_of_a_group_is_the_preferred_one(registry: KindRegistry) -> None:
    group = discovery.group(registry, "example.dev")

    assert group is not None
    assert [version["version"] for version in group["versions"]] == ["v2", "v1"]
    assert group["preferredVersion"] == {"groupVersion": "example.dev/v2", "version": "v2"}
    listed = {each["name"]: each for each in discovery.group_list(registry)["groups"]}
    assert listed["example.dev"]["preferredVersion"]["version"] == "v2"
    assert "" not in listed


def test_a_kind_that_goes_takes_its_group_with_it(registry: KindRegistry) -> None:
    registry.set_custom("widgets.example.dev", [])

    assert discovery.group(registry, "example.dev") is None
    assert discovery.resource_list(registry, "example.dev", "v1") is None
    assert "example.dev" not in discovery.group_names(registry)
    assert "/apis/example.dev/v1" not in discovery.paths(registry)


def test_the_aggregated_form_says_all_at_once(registry: KindRegistry) -> None:
    whole = discovery.aggregated(registry, discovery.group_names(registry), "v2")

    assert (whole["kind"], whole["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    by_name = {group["metadata"]["name"]: group for group in whole["items"]}
    first = by_name["example.dev"]["versions"][0]
    assert (first["version"], first["freshness"]) == ("v2", "Current")
    widget = first["resources"][0]
    assert widget["responseKind"] == {"group": "example.dev", "version": "v2", "kind": "Widget"}
    assert (widget["scope"], widget["singularResource"], widget["shortNames"]) == ("Namespaced", "widget", ["wg"])
    assert {sub["subresource"]: sub["responseKind"]["kind"] for sub in widget["subresources"]} == {
        "status": "Widget",
        "scale": "Scale",
    }
    assert [group["metadata"]["name"] for group in discovery.aggregated(registry, [""], "v2beta1")["items"]] == [""]


def test_the_version_is_one_that_clients_can_compare() -> None:
    told = discovery.version(dt.datetime(2026, 11, 21, tzinfo=dt.UTC))

    assert (told["major"], told["minor"]) == ("1", "37")
    assert told["gitVersion"].startswith("v1.37.0+tarragon")
    assert told["buildDate"] == "2026-11-21T00:00:00Z"


TABLE = Representation("Table", "v1")
OLD_TABLE = Representation("Table", "v1beta1")


@pytest.mark.parametrize(
    ("header", "form"),
    [
        ("", PLAIN),
        ("*/*", PLAIN),
        ("application/json", PLAIN),
        ("application/json; charset=utf-8", PLAIN),
        ("application/json;as=Table;v=v1;g=meta.k8s.io,application/json", TABLE),
        ("application/json; as=Table; v=v1beta1; g=meta.k8s.io, application/json", OLD_TABLE),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", PLAIN),
        ("application/vnd.kubernetes.protobuf,application/json", PLAIN),
        ("application/vnd.kubernetes.protobuf", None),
        ("text/html", None),
    ],
)
def test_the_first_form_that_suits_is_chosen(header: str, form: Representation | None) -> None:
    assert negotiate(header, frozenset({TABLE, OLD_TABLE})) == form
