from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tarragon.base import quantity


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("0", 0),
        ("2", 2000),
        ("500m", 500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("8Gi", 8 * 2**30 * 1000),
        ("1e3", 1_000_000),
        ("5E", 5 * 10**18 * 1000),
        ("+1k", 1_000_000),
        (3, 3000),
        (0.25, 250),
    ],
)
def test_a_quantity_is_read_as_exact_thousandths(text: str | float, milli: int) -> None:
    assert quantity.parse_milli(text) == milli


@pytest.mark.parametrize(("text", "milli"), [("1n", 1), ("0.0001", 1), ("1500u", 2), ("-0.0001", 0)])
def test_what_is_finer_than_a_thousandth_rounds_up_as_kubernetes_does(text: str, milli: int) -> None:
    assert quantity.parse_milli(text) == milli


@pytest.mark.parametrize(
    "text", ["", "four", "1 Gi", "1gi", "1e", "0x10", "1e9999999", "NaN", "1_000", "--1", "\u0661"]
)
def test_what_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write for example 500m, 2, 8Gi"):
        quantity.parse_milli(text)


@given(st.integers(min_value=0, max_value=(2**63 - 1) * 1000))
def test_what_is_written_reads_back_the_same(milli: int) -> None:
    assert quantity.parse_milli(quantity.format_milli(milli)) == milli


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0.5", "500m"),
        ("2048Mi", "2Gi"),
        ("1000m", "1"),
        ("1000k", "1M"),
        ("1023Ki", "1023Ki"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12e4", "120e3"),
        ("-0", "0"),
        ("0Gi", "0"),
        ("1.5Gi", "1536Mi"),
        (" 007 ", "7"),
    ],
)
def test_a_quantity_is_written_as_a_kube_apiserver_writes_it(text: str, written: str) -> None:
    assert quantity.canonical(text) == written


@given(st.decimals(-(2**70), 2**70, places=3), st.sampled_from(["", "m", "k", "E", "Ki", "Ei"]))
@example(Decimal("123456789012345678.123"), "Ei")
def test_the_canonical_spelling_is_the_same_amount(number: Decimal, suffix: str) -> None:
    written = quantity.canonical(f"{number:f}{suffix}")
    assert quantity.parse_milli(written) == quantity.parse_milli(f"{number:f}{suffix}")
    assert quantity.canonical(written) == written


@pytest.mark.parametrize(("milli", "text"), [(500, "0.5"), (1, "0.001"), (2500, "2.5"), (2_000_000, "2000"), (0, "0")])
def test_parts_of_a_gpu_are_written_as_decimal_numbers(milli: int, text: str) -> None:
    assert quantity.format_decimal(milli) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(3189243904, "2.97Gi"), (16 * 2**30, "16Gi"), (80 * 2**30, "80Gi"), (3 * 2**19, "1.5Mi"), (512, "512"), (0, "0")],
)
def test_memory_is_written_with_a_unit_of_which_there_is_one(amount: int, text: str) -> None:
    assert quantity.format_bytes(amount * 1000) == text
