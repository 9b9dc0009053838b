from __future__ import annotations

import random

from tarragon.client.http.client import HttpClient
from tarragon.client.http.server_warnings import MAX_REMEMBERED, ServerWarnings, warnings_in
from tarragon.client.http.transport import RestConfig
from tarragon.kube.core import PODS
from tarragon.kube.meta import Key
from tests.localcluster.apiserver.scripted_server import says, serving

POD = {"metadata": {"name": "a", "namespace": "d"}}


async def test_a_warning_of_the_server_is_reported_once_however_often_it_comes() -> None:
    heard: list[str] = []
    warns = says(POD, Warning='299 - "spec.x: unknown \\"field\\""')
    async with serving(warns) as script, HttpClient(RestConfig(url=script.url), random.Random(1)) as http:
        http.on_warning(heard.append)
        for _ in range(3):
            await http.get(PODS, Key("d", "a"))

    assert heard == ['spec.x: unknown "field"']


def test_several_warnings_stand_in_one_header_or_in_many() -> None:
    assert list(warnings_in(['299 - "a, b", 299 kube "c"', '299 - "d"'])) == ["a, b", "c", "d"]


def test_other_codes_and_what_is_no_warning_are_passed_over() -> None:
    assert list(warnings_in(['110 - "Response is Stale"', "299", "", '299 - "never ends'])) == []


def test_a_server_that_makes_up_warnings_without_end_is_no_longer_heard() -> None:
    heard: list[str] = []
    warnings = ServerWarnings()
    warnings.handler = heard.append

    warnings.take(f'299 - "{number}"' for number in range(2 * MAX_REMEMBERED))

    assert len(heard) == MAX_REMEMBERED
