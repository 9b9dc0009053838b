"""The API server on the wire: good clients, bad clients, and clients that go away."""

from __future__ import annotations

import asyncio
import gzip
import io
import json
import random
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import structlog
import yaml

from tarragon.base.clock import FakeClock, SystemClock
from tarragon.base.errors import TarragonError
from tarragon.client.errors import BadRequest, ResourceExpired, Unavailable
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.port import ALL_OBJECTS, LogOptions
from tarragon.kube import core
from tarragon.localcluster.apiserver.apiserver import ApiServer, ServerConfig
from tarragon.localcluster.apiserver.http import bodies
from tarragon.localcluster.storage.store import HistoryWindow
from tests.localcluster.apiserver.embedded import TOKEN, Embedded, embedded, pod, widget, widget_definition
from tests.localcluster.apiserver.embedded import WIDGETS as WIDGET

PODS = "/api/v1/namespaces/default/pods"
WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Embedded]:
    async with embedded(tmp_path) as running:
        await running.add_widgets()
        yield running


class Wire:
    """A plain HTTP client with the right token."""

    def __init__(self, cluster: Embedded, session: aiohttp.ClientSession) -> None:
        self.url = cluster.url
        self.session = session

    async def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        code, value, _ = await self.full(method, path, body, **headers)
        return code, value

    async def full(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, Any, Mapping[str, str]]:
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in headers.items()}}
        async with self.session.request(method, self.url + path, data=data, headers=given) as response:
            text = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(text) if is_json else text.decode(), response.headers

    async def lines(self, path: str, count: int, **headers: str) -> list[Any]:
        """The first so many events of a watch."""
        async with self.session.get(self.url + path, headers=headers) as response:
            assert response.status == 200
            return [json.loads(await asyncio.wait_for(response.content.readline(), 60)) for _ in range(count)]


def trusting(cluster: Embedded) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=cluster.ca.decode())


@pytest.fixture
async def wire(cluster: Embedded) -> AsyncIterator[Wire]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    connector = aiohttp.TCPConnector(ssl=trusting(cluster))
    async with aiohttp.ClientSession(headers=headers, connector=connector) as session:
        yield Wire(cluster, session)


async def until(truth: Any) -> None:
    """Let the loop turn until it is so; the test's own time limit ends a wait in vain."""
    clock = SystemClock()
    while not truth():
        await clock.sleep(0.005)


# ------------------------------------------------------------------------------------------------------ being let in


async def test_a_long_list_is_whole_in_whatever_form_it_comes(cluster: Embedded) -> None:
    names = [f"pod-{number:03}" for number in range(201)]
    async with cluster.client() as http:
        await asyncio.gather(*(http.create(core.PODS, pod(name)) for name in names))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(ssl=trusting(cluster))) as session:
        wire = Wire(cluster, session)

        code, plain = await wire("GET", PODS)
        _, for_eyes = await wire("GET", f"{PODS}?pretty=true")

    assert code == 200
    assert [one["metadata"]["name"] for one in plain["items"]] == names
    assert plain["kind"] == "PodList"
    assert for_eyes == plain


async def test_health_is_told_in_a_word_part_by_part_or_of_one_part(wire: Wire) -> None:
    assert await wire("GET", "/livez/ping") == (200, "ok")
    code, told = await wire("GET", "/readyz?verbose")
    assert (code, told.splitlines()[0], told.splitlines()[-1]) == (200, "[+]ping ok", "readyz check passed")
    code, told = await wire("GET", "/livez?verbose&exclude=etcd")
    assert "[+]etcd excluded: ok" in told
    assert (await wire("GET", "/livez/nothing"))[0] == 404


async def test_metrics_count_the_objects_of_each_kind(wire: Wire) -> None:
    await wire("POST", WIDGETS, widget("a"))

    code, told = await wire("GET", "/metrics")

    assert code == 200
    assert 'apiserver_storage_objects{resource="widgets.example.dev"} 1' in told.splitlines()


async def test_only_health_is_told_to_strangers(cluster: Embedded, wire: Wire) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        assert await wire("GET", path, Authorization="") == (200, "ok")
    for path in ("/version", "/api", "/apis", PODS, "/openapi/v3", "/no/such/path"):
        for guess in (
            "",
            "Bearer ",
            "Bearer wrong",
            f"Basic {TOKEN}",
            f"bearer{TOKEN}",
            f"Bearer {TOKEN}x",
            "Bearer \xe9",
        ):
            code, value = await wire("GET", path, Authorization=guess)

            assert (code, value["reason"], value["message"]) == (401, "Unauthorized", "Unauthorized")


async def test_a_client_that_trusts_somebody_else_is_told_so(cluster: Embedded) -> None:
    async with HttpClient(RestConfig(url=cluster.url, token=TOKEN), random.Random(1)) as http:
        with pytest.raises(Unavailable, match=r"the certificate of https://127.0.0.1:\d+ is not trusted"):
            await http.list(core.PODS)


async def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(cluster: Embedded) -> None:
    port = int(cluster.url.rpartition(":")[2])
    second = ApiServer(cluster.api, SystemClock(), ServerConfig(token=TOKEN, port=port))

    with pytest.raises(TarragonError, match=f"cannot listen on 127.0.0.1:{port}") as caught:
        await second.start()
    assert "choose another port" in str(caught.value)


# ---------------------------------------------------------------------------------------------------------- reading


async def test_an_object_goes_through_its_whole_life(wire: Wire) -> None:
    code, created = await wire("POST", PODS, pod("p"))
    assert (code, created["kind"], created["metadata"]["namespace"]) == (201, "Pod", "default")
    assert created["metadata"]["uid"]

    assert await wire("GET", f"{PODS}/p") == (200, created)
    changed = {**created, "metadata": {**created["metadata"], "labels": {"a": "b"}}}
    code, updated = await wire("PUT", f"{PODS}/p", changed)
    assert (code, updated["metadata"]["labels"]) == (200, {"a": "b"})
    code, stale = await wire("PUT", f"{PODS}/p", changed)
    assert (code, stale["reason"]) == (409, "Conflict")
    code, patched = await wire(
        "PATCH", f"{PODS}/p", {"metadata": {"labels": {"c": "d"}}}, Content_Type="application/merge-patch+json"
    )
    assert (code, patched["metadata"]["labels"]) == (200, {"a": "b", "c": "d"})
    code, _ = await wire("DELETE", f"{PODS}/p", {"kind": "DeleteOptions", "gracePeriodSeconds": 0})
    assert code == 200
    code, gone = await wire("GET", f"{PODS}/p")
    assert (code, gone["reason"], gone["message"]) == (404, "NotFound", 'pods "p" not found')


async def test_a_dry_run_of_a_new_object_does_not_look_at_its_version(wire: Wire) -> None:
    body = {**pod("p"), "metadata": {"name": "p", "resourceVersion": "7"}}

    assert (await wire("POST", f"{PODS}?dryRun=All", body))[0] == 201
    assert (await wire("POST", PODS, body))[0] == 500


@pytest.mark.parametrize("version", ["9" * 25, "9" * 5000])
async def test_a_version_beyond_64_bits_is_a_bad_request(wire: Wire, version: str) -> None:
    _, made = await wire("POST", PODS, pod("p"))
    made["metadata"]["resourceVersion"] = version

    for method, path, body in (("PUT", f"{PODS}/p", made), ("GET", f"{PODS}?resourceVersion={version}", None)):
        code, value = await wire(method, path, body)
        assert (code, value["reason"]) == (400, "BadRequest")


async def test_a_version_that_is_a_number_is_a_bad_request(wire: Wire) -> None:
    code, value = await wire("POST", PODS, {**pod("p"), "metadata": {"name": "p", "resourceVersion": 5}})

    assert (code, value["reason"]) == (400, "BadRequest")


async def test_a_grace_longer_than_the_calendar_ends_with_it(wire: Wire) -> None:
    await wire("POST", PODS, pod("p", nodeName="one"))

    code, value = await wire("DELETE", f"{PODS}/p", {"kind": "DeleteOptions", "gracePeriodSeconds": 2**62})
    assert (code, value["metadata"]["deletionTimestamp"]) == (200, "9999-12-31T23:59:59Z")
    code, value = await wire("DELETE", f"{PODS}/p", {"kind": "DeleteOptions", "gracePeriodSeconds": 30})
    assert (code, value["metadata"]["deletionGracePeriodSeconds"]) == (200, 30)


async def test_lists_come_in_pages_with_their_kind(wire: Wire) -> None:
    for name in "abc":
        await wire("POST", WIDGETS, widget(name))

    _, first = await wire("GET", f"{WIDGETS}?limit=2")
    assert (first["kind"], first["apiVersion"]) == ("WidgetList", "example.dev/v1")
    assert [each["metadata"]["name"] for each in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    _, last = await wire("GET", f"{WIDGETS}?limit=2&continue={first['metadata']['continue']}")
    assert [each["metadata"]["name"] for each in last["items"]] == ["c"]
    assert "continue" not in last["metadata"]
    _, everywhere = await wire("GET", "/apis/example.dev/v1/widgets?fieldSelector=metadata.name%3Db")
    assert [each["metadata"]["name"] for each in everywhere["items"]] == ["b"]


async def test_the_same_list_as_a_table_and_as_metadata(wire: Wire) -> None:
    await wire("POST", WIDGETS, widget("a", color="blue"))

    _, table = await wire("GET", WIDGETS, **TABLE)
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Color", "Phase", "Age", "Parts"]
    assert table["rows"][0]["cells"][:2] == ["a", "blue"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert table["metadata"]["resourceVersion"]
    _, whole = await wire("GET", f"{WIDGETS}?includeObject=Object", **TABLE)
    assert whole["rows"][0]["object"]["spec"] == {"color": "blue"}
    code, refused = await wire("GET", f"{WIDGETS}?includeObject=Everything", **TABLE)
    assert (code, refused["reason"]) == (400, "BadRequest")
    partial = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
    _, metadata = await wire("GET", WIDGETS, **partial)
    assert metadata["kind"] == "PartialObjectMetadataList"
    assert metadata["items"][0].keys() == {"kind", "apiVersion", "metadata"}


async def test_an_object_in_a_row_says_what_it_is_for_who_sorts_by_its_fields(wire: Wire) -> None:
    _, listed = await wire("GET", "/api/v1/namespaces?includeObject=Object", **TABLE)
    told = listed["rows"][0]["object"]
    assert (told["kind"], told["apiVersion"], told["metadata"]["name"]) == ("Namespace", "v1", "default")


async def test_a_client_that_takes_no_json_is_told_what_there_is(wire: Wire) -> None:
    code, value = await wire("GET", PODS, Accept="application/vnd.kubernetes.protobuf")

    assert (code, value["reason"]) == (406, "NotAcceptable")
    assert "application/json" in value["message"]


async def test_paths_that_nobody_serves_are_not_found(wire: Wire) -> None:
    for path in (
        "/nothing",
        "/api/v2",
        "/api/v1/nothing",
        "/apis/nothing.dev",
        f"{PODS}/a/b/c",
        f"{PODS}/a/nothing",
        "/api/v1/pods/a",
        "/api/v1/namespaces/default/nodes",
        "/openapi/v2",
        "/openapi/v3/apis/nothing.dev/v1",
        "/metrics/nothing",
    ):
        code, value = await wire("GET", path)

        assert (code, value["kind"], value["reason"]) == (404, "Status", "NotFound"), path


async def test_a_group_that_no_definition_serves_is_not_even_refused_with_a_status(wire: Wire) -> None:
    for path in ("/apis/example.dev/v9/widgets", "/apis/nothing.dev/v1/namespaces/default/things/a"):
        assert await wire("GET", path) == (404, "404 page not found\n")


async def test_methods_that_make_no_sense_are_not_allowed(wire: Wire) -> None:
    for method, path in (
        ("POST", "/version"),
        ("DELETE", "/apis"),
        ("POST", f"{PODS}/a"),
        ("PUT", PODS),
        ("PATCH", PODS),
        ("POST", "/api/v1/pods"),
        ("DELETE", "/api/v1/pods"),
        ("DELETE", "/api/v1/namespaces"),
        ("OPTIONS", PODS),
    ):
        code, value = await wire(method, path, {} if method in {"PUT", "POST"} else None)

        assert (code, value["reason"]) == (405, "MethodNotAllowed"), (method, path)


async def test_discovery_in_both_forms_has_its_exact_type(cluster: Embedded, wire: Wire) -> None:
    aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    for path in ("/api", "/apis"):
        async with wire.session.get(cluster.url + path, headers={"Accept": f"{aggregated},application/json"}) as answer:
            assert answer.headers["Content-Type"] == aggregated
            assert (await answer.json())["kind"] == "APIGroupDiscoveryList"
    assert (await wire("GET", "/api"))[1]["kind"] == "APIVersions"
    assert (await wire("GET", "/apis"))[1]["kind"] == "APIGroupList"
    assert (await wire("GET", "/apis/example.dev/v1"))[1]["kind"] == "APIResourceList"
    assert "/apis/example.dev/v1" in (await wire("GET", "/"))[1]["paths"]
    assert (await wire("GET", "/version"))[1]["minor"] == "37"


async def test_an_openapi_document_is_sent_once_as_long_as_it_does_not_change(wire: Wire) -> None:
    _, index = await wire("GET", "/openapi/v3")
    place = index["paths"]["apis/example.dev/v1"]["serverRelativeURL"]
    code, document, headers = await wire.full("GET", place)
    assert (code, document["openapi"], headers["Cache-Control"]) == (200, "3.0.0", "public, immutable")

    code, _ = await wire("GET", place, If_None_Match=headers["ETag"])
    assert code == 304


async def test_two_versions_of_a_kind_are_two_views_of_one_object(cluster: Embedded, wire: Wire) -> None:
    definition = widget_definition("v1", "v2")
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.dev"
    code, _ = await wire("PATCH", path, {"spec": definition["spec"]}, Content_Type="application/merge-patch+json")
    assert code == 200

    await wire("POST", WIDGETS, widget("a"))
    code, second = await wire("GET", WIDGETS.replace("/v1/", "/v2/") + "/a")
    assert (code, second["apiVersion"]) == (200, "example.dev/v2")
    _, listed = await wire("GET", WIDGETS.replace("/v1/", "/v2/"))
    assert [each["apiVersion"] for each in listed["items"]] == ["example.dev/v2"]
    assert (await wire("GET", "/openapi/v3/apis/example.dev/v2"))[0] == 200


# ---------------------------------------------------------------------------------------------------------- writing


@pytest.mark.parametrize(
    "body", [b"", b"{", b"nonsense", b'{"a":NaN}', b'{"a":"\xff"}', b"[1]", b'"text"', b"null"], ids=repr
)
async def test_a_body_that_is_no_object_is_a_bad_request(wire: Wire, body: bytes) -> None:
    code, value = await wire("POST", PODS, body)

    assert (code, value["reason"]) == (400, "BadRequest")
    assert "the object provided is unrecognized (must be of type Pod)" in value["message"]


async def test_a_body_nested_without_end_is_refused_and_the_server_lives(wire: Wire) -> None:
    deep = b'{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":' + b'{"a":' * 5000 + b"1" + b"}" * 5001
    for method, kind in (("POST", "application/json"), ("POST", "application/yaml")):
        code, value = await wire(method, PODS, deep, Content_Type=kind)

        assert (code, value["reason"]) == (400, "BadRequest")
    assert (await wire("GET", PODS))[0] == 200


@pytest.mark.parametrize("text", [r'{a: "\ud800"}', r'"\udc00": 1', r'a: ["\ud800\ud800"]'])
async def test_half_a_surrogate_pair_in_yaml_is_a_bad_request(wire: Wire, text: str) -> None:
    for method, kind in (("POST", "application/yaml"), ("PATCH", "application/apply-patch+yaml")):
        path = PODS if method == "POST" else f"{PODS}/p?fieldManager=me"
        code, value = await wire(method, path, text.encode(), Content_Type=kind)

        assert (code, value["reason"]) == (400, "BadRequest")
        assert "surrogate" in value["message"]


async def test_yaml_is_read_as_json_would_be(wire: Wire) -> None:
    described = pod("p")
    described["metadata"]["annotations"] = {"when": "2026-11-21"}
    text = yaml.safe_dump(described).replace("'2026-11-21'", '"2026-11-21"').encode()
    code, value = await wire("POST", PODS, text, Content_Type="application/yaml")
    assert (code, value["metadata"]["annotations"]) == (201, {"when": "2026-11-21"})

    bomb = b"a: &a [x,x]\nb: [*a,*a]\n"
    code, value = await wire("POST", PODS, bomb, Content_Type="application/yaml")
    assert (code, value["reason"]) == (400, "BadRequest")
    assert "aliases are not supported" in value["message"]
    code, value = await wire("POST", PODS, b"a: [", Content_Type="application/yaml")
    assert code == 400


@pytest.mark.parametrize(
    ("data", "content_type", "holds_up"),
    [
        (b"a: b\n" * 10_000, "application/yaml", False),
        (b"{}" + b" " * 50_000, "application/json", True),
        (b"a: b", "application/yaml", True),
    ],
    ids=["long YAML", "long JSON", "short YAML"],
)
async def test_what_takes_long_to_read_holds_nobody_else_up(data: bytes, content_type: str, *, holds_up: bool) -> None:
    def thread_of_reading(_data: bytes, _content_type: str) -> int:
        return threading.get_ident()

    reading = await bodies.decode_off_loop(thread_of_reading, data, content_type)

    assert (reading == threading.get_ident()) is holds_up


async def test_content_types_that_nobody_reads_are_refused_with_those_that_are_read(wire: Wire) -> None:
    await wire("POST", PODS, pod("p"))
    code, value = await wire("POST", PODS, b"<pod/>", Content_Type="text/xml")
    assert (code, value["reason"]) == (415, "UnsupportedMediaType")
    assert "application/json" in value["message"]

    code, value = await wire("PATCH", f"{PODS}/p", {}, Content_Type="application/json")
    assert (code, value["reason"]) == (415, "UnsupportedMediaType")
    assert "application/merge-patch+json" in value["message"]


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/merge-patch+json", b"[]"),
        ("application/json-patch+json", b"{}"),
        ("application/json-patch+json", b"[1]"),
        ("application/strategic-merge-patch+json", b"3"),
        ("application/merge-patch+json", b"{"),
    ],
)
async def test_a_patch_that_is_none_is_a_bad_request(wire: Wire, kind: str, body: bytes) -> None:
    await wire("POST", PODS, pod("p"))
    code, value = await wire("PATCH", f"{PODS}/p", body, Content_Type=kind)

    assert (code, value["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("sent", ["with its length", "in chunks"])
async def test_a_body_beyond_the_limit_is_cut_off(wire: Wire, sent: str) -> None:
    huge = json.dumps(pod("p", nodeName="n" * (4 * 1024 * 1024))).encode()

    async def chunks() -> AsyncIterator[bytes]:
        yield huge

    async with wire.session.post(
        wire.url + PODS, data=io.BytesIO(huge) if sent == "with its length" else chunks()
    ) as response:
        assert response.status == 413
        assert (await response.json())["reason"] == "RequestEntityTooLarge"
    assert (await wire("GET", f"{PODS}/p"))[0] == 404


async def test_a_compressed_body_is_measured_when_it_is_unpacked(wire: Wire) -> None:
    small = gzip.compress(json.dumps(pod("p", nodeName="n" * (4 * 1024 * 1024))).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}

    async with wire.session.post(wire.url + PODS, data=small, headers=headers) as response:
        assert response.status == 413
    assert (await wire("GET", f"{PODS}/p"))[0] == 404


async def test_a_client_may_ask_first_whether_its_body_is_welcome(wire: Wire) -> None:
    async with wire.session.post(wire.url + PODS, json=pod("p"), expect100=True) as response:
        assert response.status == 201


@pytest.mark.parametrize(
    "query",
    ["fieldValidation=Sometimes", "dryRun=Maybe", f"fieldManager={'m' * 200}"],
)
async def test_parameters_of_a_write_that_mean_nothing_are_invalid(wire: Wire, query: str) -> None:
    code, value = await wire("POST", f"{PODS}?{query}", pod("p"))

    assert (code, value["reason"]) == (422, "Invalid")
    assert value["details"]["causes"][0]["field"] == query.partition("=")[0]


async def test_a_dry_run_leaves_nothing(wire: Wire) -> None:
    code, value = await wire("POST", f"{PODS}?dryRun=All", pod("p"))
    assert (code, value["metadata"]["name"]) == (201, "p")
    assert (await wire("GET", f"{PODS}/p"))[0] == 404

    await wire("POST", PODS, pod("p"))
    for path, body in ((f"{PODS}/p?dryRun=All", None), (f"{PODS}/p", {"dryRun": ["All"]})):
        assert (await wire("DELETE", path, body))[0] == 200
    assert (await wire("GET", f"{PODS}/p"))[0] == 200


async def test_the_manager_of_a_write_is_the_program_unless_it_says_otherwise(wire: Wire) -> None:
    await wire("POST", PODS, pod("a"), User_Agent="kubectl/v1.32.4 (linux/amd64)")
    await wire("POST", f"{PODS}?fieldManager=mine", pod("b"))

    for name, manager in (("a", "kubectl"), ("b", "mine")):
        _, value = await wire("GET", f"{PODS}/{name}")
        assert [entry["manager"] for entry in value["metadata"]["managedFields"]] == [manager]


async def test_warnings_travel_in_headers_whatever_a_field_is_called(wire: Wire) -> None:
    odd = 'odd"\r\nSet-Cookie: x=y'
    _, _, headers = await wire.full("POST", f"{WIDGETS}?fieldValidation=Warn", widget("a", **{odd: 1}))

    assert headers["Warning"].startswith('299 - "unknown field')
    assert "Set-Cookie" not in headers


async def test_a_delete_with_conditions_that_do_not_hold_conflicts(wire: Wire) -> None:
    await wire("POST", PODS, pod("p"))
    code, value = await wire("DELETE", f"{PODS}/p", {"preconditions": {"uid": "another"}})
    assert (code, value["reason"]) == (409, "Conflict")

    for body in ({"gracePeriodSeconds": "soon"}, {"propagationPolicy": "Sideways"}):
        assert (await wire("DELETE", f"{PODS}/p", body))[0] in {400, 422}
    assert (await wire("GET", f"{PODS}/p"))[0] == 200


async def test_a_collection_is_deleted_by_its_selector(wire: Wire) -> None:
    for name in "abc":
        await wire("POST", WIDGETS, {**widget(name), "metadata": {"name": name, "labels": {"n": name}}})

    code, deleted = await wire("DELETE", f"{WIDGETS}?labelSelector=n+in+(a,b)")
    assert (code, [each["metadata"]["name"] for each in deleted["items"]]) == (200, ["a", "b"])
    _, left = await wire("GET", WIDGETS)
    assert [each["metadata"]["name"] for each in left["items"]] == ["c"]


async def test_a_pod_is_bound_and_scaled_things_are_scaled(wire: Wire) -> None:
    await wire("POST", PODS, pod("p"))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"},
    }
    code, value = await wire("POST", f"{PODS}/p/binding", binding)
    assert (code, value["status"]) == (201, "Success")
    assert (await wire("GET", f"{PODS}/p"))[1]["spec"]["nodeName"] == "n"

    await wire("POST", WIDGETS, widget("a", replicas=2))
    code, scale = await wire("GET", f"{WIDGETS}/a/scale")
    assert (code, scale["kind"], scale["spec"]["replicas"]) == (200, "Scale", 2)
    _, table = await wire("GET", f"{WIDGETS}/a/scale", **TABLE)
    assert table["rows"][0]["cells"][:2] == ["a", 2]


# --------------------------------------------------------------------------------------------------------- watching


async def test_a_watch_tells_what_is_there_and_what_happens(wire: Wire) -> None:
    await wire("POST", WIDGETS, widget("a"))
    async with wire.session.get(f"{wire.url}{WIDGETS}?watch=1") as response:
        events = [json.loads(await response.content.readline())]
        await wire("POST", WIDGETS, widget("b"))
        await wire("DELETE", f"{WIDGETS}/a")
        events += [json.loads(await response.content.readline()) for _ in range(2)]

    assert [(event["type"], event["object"]["metadata"]["name"]) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]


async def test_a_watch_goes_on_where_another_ended(wire: Wire) -> None:
    _, a = await wire("POST", WIDGETS, widget("a"))
    await wire("POST", WIDGETS, widget("b"))

    since = a["metadata"]["resourceVersion"]
    events = await wire.lines(f"{WIDGETS}?watch=true&resourceVersion={since}", 1)
    assert events[0]["object"]["metadata"]["name"] == "b"


async def test_a_watched_table_names_its_columns_once(wire: Wire) -> None:
    await wire("POST", WIDGETS, widget("a"))
    await wire("POST", WIDGETS, widget("b"))

    first, second = await wire.lines(f"{WIDGETS}?watch=1", 2, **TABLE)
    assert first["object"]["kind"] == "Table"
    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_a_watch_ends_at_its_timeout_with_a_bookmark(wire: Wire) -> None:
    _, a = await wire("POST", WIDGETS, widget("a"))
    path = f"{WIDGETS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true"
    async with wire.session.get(wire.url + path) as response:
        events = [json.loads(line) for line in (await asyncio.wait_for(response.read(), 60)).splitlines()]

    assert [event["type"] for event in events] == ["ADDED", "BOOKMARK"]
    assert int(events[1]["object"]["metadata"]["resourceVersion"]) >= int(a["metadata"]["resourceVersion"])


async def test_a_watch_from_before_the_history_is_expired_in_the_stream(tmp_path: Path) -> None:
    clock = FakeClock(SystemClock().now())
    async with embedded(tmp_path, clock, HistoryWindow(seconds=0, revisions=0)) as cluster, cluster.client() as client:
        await cluster.add_widgets()
        since = (await client.list(WIDGET)).resource_version
        for name in "ab":
            await client.create(WIDGET, widget(name))
        upkeep = asyncio.ensure_future(cluster.api.maintain())
        await until(lambda: clock.next_due() is not None)
        clock.advance(61)
        await until(lambda: clock.next_due() is not None or upkeep.done())
        assert upkeep.cancel(), "the upkeep has died of an error"

        with pytest.raises(ResourceExpired, match="too old resource version"):
            await asyncio.wait_for(anext(client.watch(WIDGET, ALL_OBJECTS, since)), 60)
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(cluster))) as session,
            session.get(
                f"{cluster.url}{WIDGETS}?watch=1&resourceVersion={since}", headers={"Authorization": f"Bearer {TOKEN}"}
            ) as response,
        ):
            assert response.status == 200
            assert json.loads(await response.read())["object"]["reason"] == "Expired"


async def test_a_client_that_hangs_up_leaves_no_watch_behind(cluster: Embedded, wire: Wire) -> None:
    async with wire.session.get(f"{cluster.url}{WIDGETS}?watch=1"):
        await until(lambda: cluster.server.open_streams == 1)

    await until(lambda: cluster.server.open_streams == 0)


async def raw(cluster: Embedded) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    port = int(cluster.url.rpartition(":")[2])
    return await asyncio.open_connection("127.0.0.1", port, ssl=trusting(cluster))


async def test_a_client_that_hangs_up_in_the_middle_of_a_body_changes_nothing(cluster: Embedded, wire: Wire) -> None:
    with structlog.testing.capture_logs() as logs:
        _, writer = await raw(cluster)
        head = f"POST {PODS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 1000\r\n\r\n"
        writer.write(head.encode() + json.dumps(pod("p")).encode())
        await writer.drain()
        writer.transport.abort()
        assert (await wire("GET", f"{PODS}/p"))[0] == 404

    assert [entry for entry in logs if entry["log_level"] == "error"] == []


async def test_what_is_no_http_is_answered_with_a_status(cluster: Embedded) -> None:
    reader, writer = await raw(cluster)
    writer.write(b"GET /\x00 what\r\n\r\n")
    answer = await asyncio.wait_for(reader.read(), 60)
    writer.close()
    await writer.wait_closed()

    assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["kind"] == "Status"
    assert b"Traceback" not in answer


async def test_a_server_that_stops_ends_its_watches_in_good_order(tmp_path: Path) -> None:
    async with embedded(tmp_path) as cluster:
        await cluster.add_widgets()
        connector = aiohttp.TCPConnector(ssl=trusting(cluster))
        async with (
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}, connector=connector) as session,
            session.get(f"{cluster.url}{WIDGETS}?watch=1&allowWatchBookmarks=1") as response,
        ):
            await until(lambda: cluster.server.open_streams == 1)
            await cluster.server.stop()
            last = (await asyncio.wait_for(response.read(), 60)).splitlines()[-1]

    assert json.loads(last)["type"] == "BOOKMARK"


@pytest.mark.parametrize("path", ["/version", f"{WIDGETS}?watch=1"], ids=["idle", "watching"])
async def test_a_server_that_stops_hangs_up_on_those_who_do_not_answer(tmp_path: Path, path: str) -> None:
    async with embedded(tmp_path) as cluster:
        await cluster.add_widgets()
        with await asyncio.to_thread(silent_client, cluster, path) as line:
            await cluster.server.stop()

            assert await asyncio.to_thread(all_of, line), "it has said goodbye, in TLS"


def silent_client(cluster: Embedded, path: str) -> socket.socket:
    """A client that has got the beginning of an answer, and then neither reads nor closes."""
    url = urlsplit(cluster.url)
    plain = socket.create_connection((str(url.hostname), url.port), timeout=60)
    line = trusting(cluster).wrap_socket(plain, server_hostname=url.hostname)
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
    assert line.recv(100).startswith(b"HTTP/1.1 200")
    bare = socket.socket(fileno=line.detach())
    bare.settimeout(60)
    return bare


def all_of(line: socket.socket) -> bytes:
    """What comes until the other end hangs up. Raises TimeoutError when it doesn't."""
    return b"".join(iter(lambda: line.recv(4096), b""))


# -------------------------------------------------------------------------------------------------------------- logs


class Container:
    """What a kubelet would read; each test says what."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self.chunks = chunks
        self.asked: list[LogOptions] = []
        self.closed = asyncio.Event()

    async def read_log(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        assert pod["metadata"]["name"] == "p"
        self.asked.append(options)
        try:
            for chunk in self.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
            if options.follow:
                await asyncio.get_running_loop().create_future()
        finally:
            self.closed.set()


async def test_a_log_is_asked_for_in_every_way(cluster: Embedded, wire: Wire) -> None:
    container = cluster.api.pod_logs = Container(b"one\n", b"two\n")
    await wire("POST", PODS, pod("p", nodeName="one"))

    assert await wire("GET", f"{PODS}/p/log?container=main&previous=true&tailLines=3&sinceSeconds=60") == (
        200,
        "one\ntwo\n",
    )
    asked = container.asked[0]
    assert (asked.container, asked.previous, asked.tail_lines, asked.since_seconds) == ("main", True, 3, 60)
    assert await wire("GET", f"{PODS}/p/log?limitBytes=6") == (200, "one\ntw")
    await wire("GET", f"{PODS}/p/log?sinceTime=2020-01-01T00:00:00Z")
    assert (container.asked[-1].since_seconds or 0) > 5 * 365 * 86400
    for query in ("tailLines=-1", "sinceSeconds=0", "limitBytes=0", "sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z"):
        code, value = await wire("GET", f"{PODS}/p/log?{query}")
        assert (code, value["reason"]) == (422, "Invalid")
    for query in ("tailLines=all", "sinceTime=yesterday"):
        assert (await wire("GET", f"{PODS}/p/log?{query}"))[0] == 400


async def test_a_log_that_can_not_be_read_says_why(cluster: Embedded, wire: Wire) -> None:
    await wire("POST", PODS, pod("p", nodeName="one"))
    refusal = BadRequest({"kind": "Status", "code": 400, "reason": "BadRequest", "message": "waiting to start"})
    cluster.api.pod_logs = Container(refusal)

    code, value = await wire("GET", f"{PODS}/p/log")
    assert (code, value["message"]) == (400, "waiting to start")
    assert (await wire("GET", f"{PODS}/nobody/log"))[0] == 404


async def test_a_follower_who_leaves_is_not_read_for_any_more(cluster: Embedded, wire: Wire) -> None:
    container = cluster.api.pod_logs = Container(b"one\n")
    await wire("POST", PODS, pod("p", nodeName="one"))
    async with wire.session.get(f"{cluster.url}{PODS}/p/log?follow=true") as response:
        assert await response.content.readline() == b"one\n"

    await asyncio.wait_for(container.closed.wait(), 60)
    await until(lambda: cluster.server.open_streams == 0)


async def test_a_bug_is_a_status_for_the_client_and_a_traceback_for_the_log(cluster: Embedded, wire: Wire) -> None:
    await wire("POST", PODS, pod("p", nodeName="one"))
    cluster.api.pod_logs = Container(ZeroDivisionError("secret detail"))
    with structlog.testing.capture_logs() as logs:
        code, value = await wire("GET", f"{PODS}/p/log")

    assert (code, value["kind"], value["reason"]) == (500, "Status", "InternalError")
    assert "secret detail" not in json.dumps(value)
    assert isinstance(logs[0]["exc_info"], ZeroDivisionError)
    assert logs[0]["path"].endswith("/pods/p/log")
    assert (await wire("GET", f"{PODS}/p"))[0] == 200
