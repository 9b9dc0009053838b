from __future__ import annotations

import asyncio

import pytest

from tarragon.client.errors import BadRequest
from tarragon.client.port import ALL_OBJECTS, Client, Selector
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, PODS
from tarragon.kube.meta import Key
from tests.contract.objects import config_map, pod


async def test_an_empty_list_is_empty(cluster: Client, namespace: str) -> None:
    listing = await cluster.list(CONFIG_MAPS, Selector(namespace, label_selector="no=such"))

    assert list(listing.items) == []
    assert listing.resource_version.isdigit()


async def test_a_list_of_a_namespace_that_does_not_exist_is_empty(cluster: Client) -> None:
    assert list((await cluster.list(PODS, Selector("nowhere"))).items) == []


async def test_a_list_is_in_the_order_of_names(cluster: Client, namespace: str) -> None:
    for name in ("c", "a", "b"):
        await cluster.create(CONFIG_MAPS, config_map(namespace, name, labels={"of": "mine"}))

    listing = await cluster.list(CONFIG_MAPS, Selector(namespace, label_selector="of=mine"))

    assert [one.metadata.name for one in listing.items] == ["a", "b", "c"]


async def test_a_list_of_everything_spans_namespaces(cluster: Client, namespace: str) -> None:
    other = f"{namespace}-2"
    await cluster.create(NAMESPACES, {"metadata": {"name": other}})
    for where in (namespace, other):
        await cluster.create(CONFIG_MAPS, config_map(where, "a", labels={"batch": namespace}))

    listing = await cluster.list(CONFIG_MAPS, Selector(label_selector=f"batch={namespace}"))

    assert sorted(one.metadata.namespace for one in listing.items) == [namespace, other]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a", "b"]),
        ("tier==web,canary", ["b"]),
        ("tier!=web", ["c", "d"]),
        ("tier in (web, db)", ["a", "b", "c"]),
        ("tier notin (web)", ["c", "d"]),
        ("!tier", ["d"]),
        ("canary", ["b"]),
        ("", ["a", "b", "c", "d"]),
    ],
)
async def test_labels_select(cluster: Client, namespace: str, selector: str, names: list[str]) -> None:
    labels = {"a": {"tier": "web"}, "b": {"tier": "web", "canary": ""}, "c": {"tier": "db"}, "d": {}}
    for name, own in labels.items():
        await cluster.create(
            PODS, {**pod(namespace, name), "metadata": {"name": name, "namespace": namespace, "labels": own}}
        )

    listing = await cluster.list(PODS, Selector(namespace, label_selector=selector))

    assert [one.metadata.name for one in listing.items] == names


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("metadata.name=a", ["a"]),
        ("metadata.name!=a", ["b", "c"]),
        ("spec.nodeName=one", ["b", "c"]),
        ("spec.nodeName=", ["a"]),
        ("spec.nodeName=one,status.phase=Running", ["c"]),
        ("status.phase!=Running", ["a", "b"]),
    ],
)
async def test_fields_select_pods(cluster: Client, namespace: str, selector: str, names: list[str]) -> None:
    await cluster.create(PODS, pod(namespace, "a"))
    await cluster.create(PODS, pod(namespace, "b", nodeName="one"))
    await cluster.create(PODS, pod(namespace, "c", nodeName="one"))
    await cluster.patch(PODS, Key(namespace, "c"), {"status": {"phase": "Running"}}, subresource="status")

    listing = await cluster.list(PODS, Selector(namespace, field_selector=selector))

    assert [one.metadata.name for one in listing.items] == names


@pytest.mark.parametrize(
    "selection",
    [Selector(label_selector="a==="), Selector(field_selector="spec.colour=red"), Selector(field_selector="x")],
)
async def test_a_selector_that_cannot_be_read_is_a_bad_request(cluster: Client, selection: Selector) -> None:
    with pytest.raises(BadRequest):
        await cluster.list(PODS, selection)


async def test_a_list_has_all_pages(cluster: Client, namespace: str) -> None:
    labels = {"of": namespace}
    await asyncio.gather(
        *(
            cluster.create(CONFIG_MAPS, config_map(namespace, f"c-{number:04}", labels=labels))
            for number in range(1_100)
        )
    )

    listing = await cluster.list(CONFIG_MAPS, Selector(label_selector=f"of={namespace}"))

    assert [one.metadata.name for one in listing.items] == [f"c-{number:04}" for number in range(1_100)]


async def test_the_default_namespace_is_there_from_the_start(cluster: Client) -> None:
    names = {one.metadata.name for one in (await cluster.list(NAMESPACES, ALL_OBJECTS)).items}

    assert {"default", "kube-system"} <= names


READ_ALIKE = {
    "a>1": "b",
    "a>1,a<3": "b",
    "a<3": "ab",
    "tier in(web)": "ab",
    "tier in (web,)": "ab",
    "tier in ()": "",
    "tier=": "",
    "tier!=": "abcd",
    "! tier": "d",
    " tier = web , canary ": "b",
    "x.y/tier=web": "c",
    "in=1": "",
    "notin": "",
    "tier=in": "",
    "tier notin (web, db)": "d",
    "tier=web\n,canary": "b",
}
REFUSED_ALIKE = {
    "a>x": "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must",
    "tier in (web db)": "unable to parse requirement: found 'db', expected: ',' or ')'",
    "tier in web": "unable to parse requirement: found 'web' expected: '('",
    "tier !in (web)": "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt",
    "tier=web,": "found '', expected: identifier after ','",
    ",tier=web": "found ',', expected: !, identifier, or 'end of string'",
    "tier=web,,canary": "found ',', expected: identifier after ','",
    "tier=web db": "found 'db', expected: ',' or 'end of string'",
    "!tier=web": "found '=', expected: ',' or 'end of string'",
    "tier===web": "unable to parse requirement: found '=', expected: identifier",
    "a/b/c=1": 'unable to parse requirement: <nil>: Invalid value: "a/b/c"',
    "tier=-x": 'unable to parse requirement: values[0][tier]: Invalid value: "-x": ',
    "tier=ä": 'unable to parse requirement: values[0][tier]: Invalid value: "ä": ',
    f"tier={'x' * 64}": "must be no more than 63 bytes",
}
FIELDS_ALIKE = {
    "metadata.name==a": "a",
    "metadata.name=a,": "a",
    "metadata.name=a,,metadata.name=a": "a",
    "metadata.name=a,metadata.name=b": "",
    "metadata.name=": "",
    "metadata.name=!a": "",
    "metadata.name=a\\,b": "",
    "spec.schedulerName=nobody": "abcd",
    ",": "abcd",
}
FIELDS_REFUSED_ALIKE = {
    "metadata.name": "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
    "metadata.name===a": "invalid field selector: unescaped character in value: 61",
    "metadata.name!==a": "invalid field selector: unescaped character in value: 61",
    "metadata.name=a\\": "invalid field selector: invalid escape sequence: \\",
    "metadata.name = a": "field label not supported: metadata.name ",
    "metadata.uid=1": "field label not supported: metadata.uid",
    "STATUS.PHASE=Pending": "field label not supported: STATUS.PHASE",
}


async def test_selectors_are_read_alike_to_the_last_comma(cluster: Client, namespace: str) -> None:
    labels = {"a": {"tier": "web", "a": "1"}, "b": {"tier": "web", "canary": "", "a": "2"}}
    labels |= {"c": {"tier": "db", "a": "x", "x.y/tier": "web"}, "d": {}}
    for name, own in labels.items():
        body = pod(namespace, name, schedulerName="nobody")
        await cluster.create(PODS, {**body, "metadata": {**body["metadata"], "labels": own}})

    async def found(selection: Selector) -> str:
        return "".join([one.metadata.name for one in (await cluster.list(PODS, selection)).items])

    async def refusal(selection: Selector) -> str:
        with pytest.raises(BadRequest) as caught:
            await cluster.list(PODS, selection)
        return str(caught.value)

    assert {text: await found(Selector(namespace, label_selector=text)) for text in READ_ALIKE} == READ_ALIKE
    assert {text: await found(Selector(namespace, field_selector=text)) for text in FIELDS_ALIKE} == FIELDS_ALIKE
    for text, words in REFUSED_ALIKE.items():
        assert words in await refusal(Selector(namespace, label_selector=text))
    for text, words in FIELDS_REFUSED_ALIKE.items():
        assert words in await refusal(Selector(namespace, field_selector=text))
