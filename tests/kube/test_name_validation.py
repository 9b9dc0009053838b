from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.kube import name_validation
from tarragon.kube.name_validation import dns_label_error

LETTERS = st.text("aB0-._/", max_size=8) | st.text("a-", min_size=60, max_size=66)


@given(LETTERS)
def test_both_kinds_of_message_refuse_the_same_labels(name: str) -> None:
    assert bool(dns_label_error(name, may_begin_with_digit=True)) == bool(name_validation.label(name))
    assert bool(dns_label_error(name)) == bool(name_validation.label_1035(name))


@given(LETTERS)
def test_a_label_is_a_subdomain_and_a_label_value(name: str) -> None:
    if not name_validation.label(name):
        assert not name_validation.subdomain(name)
        assert not name_validation.label_value(name)
        assert not name_validation.qualified(name)


@pytest.mark.parametrize("name", ["a..b", "a.", ".a", "A", "a_b", "", "a" * 254, "a\n"])
def test_an_invalid_subdomain_is_refused(name: str) -> None:
    assert name_validation.subdomain(name)


@pytest.mark.parametrize("name", ["a/b/c", "/a", "a/", "A.b/c", f"{'a' * 254}/c", "a" * 64, "", "a\n"])
def test_an_invalid_label_key_is_refused(name: str) -> None:
    assert name_validation.qualified(name)
