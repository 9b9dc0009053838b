"""A kind of job is a folder that nobody imports but the registry: import-linter keeps those that it is told of."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import ROOT


def test_the_folder_of_every_framework_is_protected() -> None:
    registry = (ROOT / "tarragon" / "frameworks" / "registry.py").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]

    folders = set(re.findall(r"^from (tarragon\.frameworks\.\w+)\.framework import", registry, re.MULTILINE))
    (contract,) = (each for each in contracts if each["type"] == "protected")
    assert set(contract["protected_modules"]) == folders
    assert contract["allowed_importers"] == ["tarragon.frameworks.registry"]
