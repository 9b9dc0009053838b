from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.kubelet.base.expansion import expand

VARIABLES = {"VAR_A": "A", "VAR_B": "B", "VAR_C": "C", "VAR_REF": "$(VAR_A)", "VAR_EMPTY": ""}

# The test vectors of Kubernetes' design proposal "Variable expansion", and cases from its text.
VECTORS = {
    "$(VAR_A)": "A",
    "___$(VAR_B)___": "___B___",
    "___$(VAR_C)": "___C",
    "$(VAR_A)-$(VAR_A)": "A-A",
    "$(VAR_A)-1": "A-1",
    "$(VAR_A)_$(VAR_B)_$(VAR_C)": "A_B_C",
    "$$(VAR_B)_$(VAR_A)": "$(VAR_B)_A",
    "$$$$$$$(VAR_A)": "$$$A",
    "$(VAR_REF)": "$(VAR_A)",
    "foo$(VAR_EMPTY)bar": "foobar",
    "foo\\\\$(VAR_A)": "foo\\\\A",
    "$(VAR_A)$$(VAR_B)": "A$(VAR_B)",
    "$VAR_A)": "$VAR_A)",
    "${%}": "${%}",
    "$(VAR_MISSING)": "$(VAR_MISSING)",
    "$(VAR_A": "$(VAR_A",
    "$(VAR_A$(VAR_B)": "$(VAR_A$(VAR_B)",
    "$$(BAD": "$(BAD",
    "$$": "$",
    "$": "$",
    "f000-$": "f000-$",
    "$VAR_A": "$VAR_A",
    "$()": "$()",
    "awk '{print $1}'": "awk '{print $1}'",
    "--pass=$$(date)": "--pass=$(date)",
    "": "",
}


@pytest.mark.parametrize("text", VECTORS)
def test_variables_expand_as_kubernetes_expands_them(text: str) -> None:
    assert expand(text, VARIABLES) == VECTORS[text]


@given(st.text(alphabet=st.characters(exclude_characters="$")), st.dictionaries(st.text(), st.text()))
def test_text_without_a_dollar_sign_is_unchanged(text: str, variables: dict[str, str]) -> None:
    assert expand(text, variables) == text


@given(st.text())
def test_doubled_dollar_signs_escape_any_text(text: str) -> None:
    assert expand(text.replace("$", "$$"), VARIABLES) == text
