"""The page about shared GPUs names every setting by which a share is requested."""

from __future__ import annotations

import pytest

from tarragon.kube.scheduling.gpu_shares import SHARE_ANNOTATIONS, SHARE_LABELS, SHARE_RESOURCES
from tests.docs.markdown import ROOT

PAGE = ROOT / "docs" / "gpu-sharing.md"


@pytest.mark.parametrize("name", sorted(SHARE_ANNOTATIONS | SHARE_LABELS | SHARE_RESOURCES))
def test_the_table_of_forms_has_every_setting(name: str) -> None:
    prefix, _, own = name.partition("/")
    (row,) = (line for line in PAGE.read_text().splitlines() if line.startswith("| ") and f"`{prefix}/…`" in line)

    assert f"`{own}`" in row
