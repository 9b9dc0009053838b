"""The names on the page about one job's way are defined in the modules that it links."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "walkthrough.md"
LINKS = re.findall(r"\[`(\w+)`\]\((\.\./tarragon/[\w/]+\.py)\)", PAGE.read_text())


@pytest.mark.parametrize(("name", "path"), LINKS)
def test_each_name_on_the_page_is_defined_in_the_linked_module(name: str, path: str) -> None:
    module = ast.parse((PAGE.parent / path).read_text())

    defined = {
        node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    targets = [target for node in module.body if isinstance(node, ast.Assign) for target in node.targets]
    targets += [node.target for node in module.body if isinstance(node, ast.AnnAssign)]
    defined |= {target.id for target in targets if isinstance(target, ast.Name)}
    assert name in defined


def test_the_page_links_most_of_the_road() -> None:
    folders = {path.split("/")[2] for _, path in LINKS}

    assert {"client", "frameworks", "job", "localcluster", "operator", "plan", "scheduling"} <= folders
