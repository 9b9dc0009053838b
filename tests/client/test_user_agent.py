from __future__ import annotations

import os
import random
import re

from tarragon import __version__
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.client.http.user_agent import user_agent
from tarragon.kube.core import PODS
from tests.localcluster.apiserver.scripted_server import says, serving


def test_an_agent_is_written_as_those_of_client_go_and_names_component_and_instance() -> None:
    named = re.escape(f"tarragon/{__version__}")
    platform = f"{os.uname().sysname.lower()}/[a-z0-9_]+"

    assert re.fullmatch(
        rf"{named} \({platform}; operator; tarragon-5d4f_0a1b\)", user_agent("operator", "tarragon-5d4f_0a1b")
    )
    assert re.fullmatch(rf"{named} \({platform}; cli\)", user_agent("cli"))


def test_no_instance_can_break_the_header() -> None:
    hostile = user_agent("operator", "a)b(c\\d;e f\r\nAuthorization: x\0\x7f\u202eä\ud800" + "z" * 5000)

    assert "a_b_c_d_e_f__Authorization:_x" in hostile
    assert re.fullmatch(r"[ -~]+", hostile)
    assert hostile.count("(") == hostile.count(")") == 1
    assert len(hostile) < 400


async def test_a_client_names_itself_as_its_server_says() -> None:
    async with serving(says({"items": [], "metadata": {"resourceVersion": "1"}})) as script:
        async with HttpClient(
            RestConfig(url=script.url, user_agent=user_agent("node", "w-1")), random.Random(1)
        ) as http:
            await http.list(PODS)
        assert {asked.headers["User-Agent"] for asked in script.asked} == {user_agent("node", "w-1")}
