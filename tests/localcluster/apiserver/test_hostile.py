"""Bodies and tokens that somebody has written to do harm get an answer in words, and the server goes on."""

from __future__ import annotations

import base64
import json
from typing import Any

import aiohttp
import pytest

from tests.hostile import LISTS, OBJECTS, Form, nested
from tests.localcluster.apiserver.embedded import Embedded
from tests.localcluster.apiserver.test_apiserver import Wire, trusting

WIDGETS = "/apis/example.dev/v1/namespaces/default/widgets"
TOO_DEEP = "the object provided is nested deeper than 100 levels"


def widget(name: str, deep: str) -> bytes:
    head = f'"apiVersion":"example.dev/v1","kind":"Widget","metadata":{{"name":"{name}"}}'
    return f'{{{head},"spec":{{"zz":{deep}}}}}'.encode()


@pytest.mark.parametrize("form", [LISTS, OBJECTS], ids=["lists", "objects"])
@pytest.mark.parametrize("levels", [110, 985, 9_900, 100_000])
@pytest.mark.parametrize("kind", ["application/json", "application/yaml"])
async def test_a_body_that_is_too_deep_is_refused(ask: Wire, kind: str, levels: int, form: Form) -> None:
    code, status = await ask("POST", WIDGETS, widget("a", nested(levels, form)), Content_Type=kind)

    assert (code, status["message"]) == (400, TOO_DEEP)


@pytest.mark.parametrize("kind", ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"])
async def test_a_patch_that_is_too_deep_is_refused(ask: Wire, kind: str) -> None:
    await ask("POST", WIDGETS, widget("a", "1"))
    body = f'{{"spec":{{"zz":{nested(3_000)}}}}}'.encode()

    code, status = await ask("PATCH", f"{WIDGETS}/a?fieldManager=m", body, Content_Type=f"application/{kind}")

    assert (code, status["message"]) == (400, TOO_DEEP)


@pytest.mark.parametrize("levels", [985, 20_000])
async def test_a_token_whose_parts_are_deep_is_just_a_wrong_one(server: Embedded, ask: Wire, levels: int) -> None:
    part = base64.urlsafe_b64encode(nested(levels).encode()).decode().rstrip("=")
    headers = {"Authorization": f"Bearer {part}.{part}.{part}"}

    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting(server))) as stranger,
        stranger.get(f"{server.url}{WIDGETS}", headers=headers) as answer,
    ):
        assert answer.status in {400, 401}

    code, _ = await ask("GET", WIDGETS)
    assert code == 200


LABELS = {"value": "v:" + nested(2_000), "keys": "k:" + nested(2_000, OBJECTS), "index": "i:" + nested(2_000)}


@pytest.mark.parametrize("label", LABELS.values(), ids=LABELS)
async def test_managed_fields_with_deep_steps_do_no_harm(ask: Wire, label: str) -> None:
    entry: dict[str, Any] = {
        "manager": "m",
        "operation": "Update",
        "apiVersion": "example.dev/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {label: {}}},
    }
    kind = {"apiVersion": "example.dev/v1", "kind": "Widget"}
    body = {**kind, "metadata": {"name": "a", "managedFields": [entry]}, "spec": {}}

    code, _ = await ask("POST", WIDGETS, json.dumps(body).encode())

    assert code in {201, 400, 422}
    apply = b'{"apiVersion":"example.dev/v1","kind":"Widget","spec":{}}'
    code, _ = await ask("PATCH", f"{WIDGETS}/a?fieldManager=x", apply, Content_Type="application/apply-patch+yaml")
    assert code < 500
