"""What few clients ask for, and some do: the less known parameters of requests, answered as a real server does."""

from __future__ import annotations

from typing import Any

import pytest

from tarragon.kube.codec import decode
from tarragon.localcluster.api.requests import WriteOptions
from tarragon.localcluster.apiserver.http.duplicate_fields import with_duplicate_fields
from tests.localcluster.apiserver.embedded import pod, widget
from tests.localcluster.apiserver.test_apiserver import Wire

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def named(name: str, **metadata: str) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}}


async def text_of(ask: Wire, path: str, **headers: str) -> str:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with ask.session.get(ask.url + path, headers=given) as response:
        return await response.text()


async def test_people_get_an_answer_in_lines_and_programs_as_they_ask(ask: Wire) -> None:
    await ask("POST", MAPS, named("a"))
    lines = '{\n  "apiVersion": "v1",\n  "kind": "ConfigMap",\n'

    assert (await text_of(ask, f"{MAPS}/a?pretty=true")).startswith(lines)
    assert (await text_of(ask, f"{MAPS}/a", User_Agent="curl/8.5.0")).startswith(lines)
    assert "\n" not in await text_of(ask, f"{MAPS}/a?pretty=false", User_Agent="curl/8.5.0")
    assert "\n" not in await text_of(ask, f"{MAPS}/a")
    assert (await text_of(ask, f"{MAPS}/b?pretty=1")).startswith('{\n  "kind": "Status",\n')


async def test_a_name_that_may_be_made_up_and_is_taken_can_be_tried_again(ask: Wire) -> None:
    await ask("POST", MAPS, named("a"))

    code, told = await ask("POST", MAPS, named("a", generateName="a-"))

    words = 'configmaps "a" already exists, the server was not able to generate a unique name for the object'
    assert (code, told["reason"], told["message"]) == (409, "AlreadyExists", words)
    assert told["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("watch=1&resourceVersion=1&resourceVersionMatch=NotOlderThan", "is forbidden for watch unless"),
        ("watch=1&sendInitialEvents=true", "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        ("watch=1&sendInitialEvents=true&resourceVersionMatch=Exact", 'supported values: "NotOlderThan"'),
        ("sendInitialEvents=true", "sendInitialEvents is forbidden for list"),
        ("continue=x&resourceVersionMatch=Exact", "is forbidden when continue is provided"),
    ],
)
async def test_options_of_lists_and_watches_that_contradict_each_other_are_invalid(
    ask: Wire, query: str, words: str
) -> None:
    code, told = await ask("GET", f"{MAPS}?{query}")

    assert (code, told["reason"]) == (422, "Invalid")
    assert words in told["message"]


async def test_a_watch_that_begins_with_everything_says_where_that_ends(ask: Wire) -> None:
    await ask("POST", MAPS, named("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

    first, last = await ask.lines(f"{MAPS}?{query}", 2)

    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert (last["type"], last["object"]["metadata"]["annotations"]) == (
        "BOOKMARK",
        {"k8s.io/initial-events-end": "true"},
    )


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"kind": "Pod", "apiVersion": "v1"}, 400, "must be of type DeleteOptions"),
        ({"propagationPolicy": "Sideways"}, 422, 'Unsupported value: "Sideways"'),
    ],
)
async def test_options_of_a_delete_that_make_no_sense_delete_nothing(
    ask: Wire, body: dict[str, Any], code: int, words: str
) -> None:
    await ask("POST", MAPS, named("a"))

    answered, told = await ask("DELETE", f"{MAPS}/a", body)

    assert answered == code
    assert words in told["message"]
    assert (await ask("GET", f"{MAPS}/a"))[0] == 200


async def test_what_is_only_tried_leaves_nothing_whatever_the_verb(ask: Wire) -> None:
    await ask("POST", PODS, pod("p"))
    await ask("POST", WIDGETS, widget("w", replicas=1))
    everything = f"{PODS}/p", f"{WIDGETS}/w", f"{MAPS}/new", f"{WIDGETS}/new"
    before = [await ask("GET", path) for path in everything]
    node = {"target": {"kind": "Node", "name": "n"}}
    merge = "application/merge-patch+json"
    scale = {"metadata": {"name": "w", "namespace": "default"}, "spec": {"replicas": 3}}
    apply = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new"}}

    tried = [
        await ask("POST", f"{MAPS}?dryRun=All", named("new")),
        await ask("PUT", f"{PODS}/p?dryRun=All", {**before[0][1], "metadata": {"name": "p", "labels": {"a": "b"}}}),
        await ask("PATCH", f"{PODS}/p?dryRun=All", {"metadata": {"labels": {"a": "b"}}}, Content_Type=merge),
        await ask("PATCH", f"{PODS}/p/status?dryRun=All", {"status": {"phase": "Failed"}}, Content_Type=merge),
        await ask("PATCH", f"{WIDGETS}/w/status?dryRun=All", {"status": {"phase": "x"}}, Content_Type=merge),
        await ask("PUT", f"{WIDGETS}/w/scale?dryRun=All", scale),
        await ask("PATCH", f"{WIDGETS}/w/scale?dryRun=All", {"spec": {"replicas": 3}}, Content_Type=merge),
        await ask("PATCH", f"{MAPS}/new?dryRun=All&fieldManager=m", apply, Content_Type="application/apply-patch+yaml"),
        await ask("POST", f"{PODS}/p/binding?dryRun=All", {**named("p"), **node}),
        await ask("POST", f"{PODS}/p/eviction?dryRun=All", named("p")),
        await ask("DELETE", f"{PODS}/p?dryRun=All"),
        await ask("DELETE", f"{WIDGETS}?dryRun=All"),
    ]

    assert [code for code, _ in tried] == [201, 200, 200, 200, 200, 200, 200, 201, 201, 201, 200, 200]
    assert [await ask("GET", path) for path in everything] == before


async def test_discovery_is_sent_once_as_long_as_no_kind_comes_or_goes(ask: Wire) -> None:
    _, _, headers = await ask.full("GET", "/apis", Accept=DISCOVERY)
    known = headers["ETag"]

    assert (await ask.full("GET", "/apis", Accept=DISCOVERY, If_None_Match=known))[0] == 304
    await ask("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev")
    code, _, headers = await ask.full("GET", "/apis", Accept=DISCOVERY, If_None_Match=known)
    assert (code, headers["ETag"] != known) == (200, True)


async def test_jobs_are_selected_by_their_counts(ask: Wire) -> None:
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    template["spec"]["restartPolicy"] = "Never"  # type: ignore[index]
    await ask("POST", jobs, {**named("done"), "spec": {"template": template}})
    await ask("POST", jobs, {**named("not-yet"), "spec": {"template": template}})
    merge = "application/merge-patch+json"
    await ask("PATCH", f"{jobs}/done/status", {"status": {"succeeded": 1}}, Content_Type=merge)

    for count, name in ((1, "done"), (0, "not-yet")):
        _, found = await ask("GET", f"{jobs}?fieldSelector=status.successful={count}")
        assert [one["metadata"]["name"] for one in found["items"]] == [name]


@pytest.mark.parametrize(
    "path",
    [
        *(
            "/apis/autoscaling",
            "/apis/policy",
            "/apis/networking.k8s.io",
            "/apis/node.k8s.io",
            "/apis/apiregistration.k8s.io",
        ),
        *("/apis/apps/v1/statefulsets", "/apis/apps/v1/daemonsets", "/apis/batch/v1/cronjobs"),
        *("/api/v1/limitranges", "/api/v1/replicationcontrollers", "/apis/storage.k8s.io/v1/csidrivers"),
    ],
)
async def test_kinds_that_no_training_job_needs_are_not_served(ask: Wire, path: str) -> None:
    assert (await ask("GET", path))[0] == 404


async def test_a_volume_of_a_path_says_that_its_type_does_not_matter(ask: Wire) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "hostPath": {"path": "/x"}}

    _, made = await ask("POST", "/api/v1/persistentvolumes", {**named("pv"), "spec": spec})

    assert made["spec"]["hostPath"] == {"path": "/x", "type": ""}


async def test_a_field_that_comes_twice_is_told_or_refused(ask: Wire) -> None:
    text = (
        b'{"apiVersion":"example.dev/v1","kind":"Widget","metadata":{"name":"a"},'
        b'"spec":{"replicas":1,"replicas":2,"colour":"red"}}'
    )

    _, _, headers = await ask.full("POST", f"{WIDGETS}?dryRun=All", text)
    _, _, silent = await ask.full("POST", f"{WIDGETS}?dryRun=All&fieldValidation=Ignore", text)
    code, told = await ask("POST", f"{WIDGETS}?fieldValidation=Strict", text)

    assert headers.getall("Warning") == [  # type: ignore[attr-defined]
        '299 - "duplicate field \\"spec.replicas\\""',
        '299 - "unknown field \\"spec.colour\\""',
    ]
    assert "Warning" not in silent
    assert code == 400
    assert told["message"].endswith(
        'strict decoding error: duplicate field "spec.replicas", unknown field "spec.colour"'
    )


@pytest.mark.parametrize("text", [b'{"a" : 1, "a":2}', b'{"a":":", "a":"\\u003a", "b":"\\u003A\\u003a"}'])
def test_neither_spaces_nor_escapes_hide_a_field_that_comes_twice(text: bytes) -> None:
    assert with_duplicate_fields(WriteOptions(), text, decode(text, dict)).duplicate_fields == ['duplicate field "a"']


async def test_a_pod_is_bound_by_a_binding_of_its_name(ask: Wire) -> None:
    bindings = "/api/v1/namespaces/default/bindings"
    await ask("POST", PODS, pod("p"))
    binding = {**named("p"), "target": {"kind": "Node", "name": "n"}}

    assert (await ask("POST", f"{bindings}?dryRun=All", binding))[0] == 201
    assert "nodeName" not in (await ask("GET", f"{PODS}/p"))[1]["spec"]
    assert (await ask("POST", bindings, binding))[0] == 201
    assert (await ask("GET", f"{PODS}/p"))[1]["spec"]["nodeName"] == "n"
    assert (await ask("POST", bindings, {**binding, **named("none")}))[1]["message"] == 'pods "none" not found'
    assert [(await ask("GET", path))[0] for path in (bindings, f"{bindings}/p")] == [405, 405]


async def test_one_object_by_its_name_is_read_and_not_watched(ask: Wire) -> None:
    await ask("POST", MAPS, named("a"))

    code, told = await ask("GET", f"{MAPS}/a?watch=true")

    assert (code, told["kind"]) == (200, "ConfigMap")


async def test_a_custom_kind_is_selected_by_the_fields_that_its_definition_names(ask: Wire) -> None:
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    _, definition = await ask("GET", f"{definitions}/widgets.example.dev")
    definition["spec"]["versions"][0]["selectableFields"] = [
        {"jsonPath": ".spec.color"},
        {"jsonPath": ".spec.replicas"},
    ]
    assert (await ask("PUT", f"{definitions}/widgets.example.dev", definition))[0] == 200
    await ask("POST", WIDGETS, widget("a", color="green", replicas=1))
    await ask("POST", WIDGETS, widget("b", color="blue"))

    for selector, names in (
        ("spec.color=green,spec.replicas=1", ["a"]),
        ("spec.color!=green", ["b"]),
        ("spec.replicas=", ["b"]),
    ):
        _, found = await ask("GET", f"{WIDGETS}?fieldSelector={selector}")
        assert [one["metadata"]["name"] for one in found["items"]] == names
    (added,) = await ask.lines(f"{WIDGETS}?watch=1&fieldSelector=spec.color%3Dblue", 1)
    assert added["object"]["metadata"]["name"] == "b"
    assert (await ask("GET", f"{WIDGETS}?fieldSelector=spec.parts=x"))[0] == 400
