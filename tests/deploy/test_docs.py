from __future__ import annotations

import os

import pytest

from tests.deploy.stage import Stage
from tests.docs.commands import commands_of
from tests.docs.markdown import ROOT, lines
from tests.docs.shell import Shell

pytestmark = [pytest.mark.real, pytest.mark.kubectl, pytest.mark.timeout(900)]

PAGE = ROOT / "docs" / "install.md"
PATIENCE = 400
"""Seconds for a command. A busy kube-apiserver of 1.37 sometimes finalizes a CRD in its second or third try only, each
of which takes a minute: `kubectl delete` waits as long, as the page says."""


async def test_every_command_of_the_page_on_installing_works_in_the_order_of_the_page(empty: Stage) -> None:
    at_a_prompt = {line.number for line in lines(PAGE.read_text()) if line.language == "console"}
    story = [command for command in commands_of(PAGE) if command.line not in at_a_prompt]

    with Shell(ROOT, {**os.environ, "KUBECONFIG": str(empty.plane.kubeconfig)}) as shell:
        for command in story:
            result = shell.run(command.text, timeout=PATIENCE)
            assert result.exit_code == 0, f"{command}\n{result.output}"
    assert len(story) > 10
