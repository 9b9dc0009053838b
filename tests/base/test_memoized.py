"""What was computed for a text is computed again only when it was long ago, or large."""

from __future__ import annotations

from tarragon.base.memoized import MAX_ENTRIES, MAX_KEY_BYTES, Memoized


class Counted:
    def __init__(self) -> None:
        self.asked: list[bytes] = []

    def __call__(self, text: bytes) -> int:
        self.asked.append(text)
        return len(text)


def test_what_is_asked_for_again_is_computed_once() -> None:
    compute = Counted()
    recent = Memoized(compute)

    assert [recent(b"a"), recent(b"bb"), recent(b"a"), recent(b"bb")] == [1, 2, 1, 2]
    assert compute.asked == [b"a", b"bb"]


def test_only_the_last_results_are_kept() -> None:
    compute = Counted()
    recent = Memoized(compute)
    for number in range(MAX_ENTRIES + 1):
        recent(b"%d" % number)
    compute.asked.clear()

    recent(b"%d" % MAX_ENTRIES)
    recent(b"0")

    assert compute.asked == [b"0"]


def test_neither_long_texts_nor_large_results_are_kept() -> None:
    compute = Counted()
    recent = Memoized(compute, is_small=lambda length: length != 2)
    for text in (b"a" * (MAX_KEY_BYTES + 1), b"bb"):
        assert [recent(text), recent(text)] == [len(text)] * 2

    assert len(compute.asked) == 4
