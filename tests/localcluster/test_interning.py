from __future__ import annotations

import random

from tarragon.kube.codec import encode
from tarragon.localcluster.storage.interning import ObjectInterner, join_pieces


def a_body(revision: int, *, fields: str = "a", status: str = "Pending", note: str = "x" * 900) -> bytes:
    entry = {"manager": "m", "operation": "Update", "fieldsType": "FieldsV1", "fieldsV1": {f"f:{fields}": {}}}
    metadata = {"name": f"n{revision}", "resourceVersion": str(revision), "annotations": {"note": note}}
    return encode(
        {
            "kind": "Pod",
            "metadata": {**metadata, "managedFields": [entry, {**entry, "subresource": "status"}]},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": status},
        }
    )


def test_joined_pieces_are_the_original_bytes() -> None:
    words = [
        b'"resourceVersion":"1"',
        b',"managedFields":[',
        b'{"manager":',
        b'"fieldsV1":',
        b"}]",
        b',"status":{',
        b"x",
    ]
    chance, cutter = random.Random(1), ObjectInterner()
    before: bytes | tuple[bytes, ...] = b""

    for _ in range(3000):
        body = b"y" * 1024 + b"".join(chance.choices(words, k=chance.randrange(12)))
        held = cutter.intern(body, before)
        assert join_pieces(held) == body
        before = held


def test_a_revision_shares_unchanged_pieces_with_the_previous_one() -> None:
    cutter = ObjectInterner()
    one = cutter.intern(a_body(1))
    two = cutter.intern(a_body(2, status="Running"), one)

    assert isinstance(one, tuple)
    assert isinstance(two, tuple)
    assert join_pieces(two) == a_body(2, status="Running")
    alone = {id(piece) for piece in two} - {id(piece) for piece in one}
    assert sum(len(piece) for piece in two if id(piece) in alone) < 150


def test_objects_of_one_template_share_managed_fields() -> None:
    cutter = ObjectInterner()
    one, two = cutter.intern(a_body(1)), cutter.intern(a_body(2, note="y" * 900))

    assert isinstance(one, tuple)
    assert isinstance(two, tuple)
    assert [a is b for a, b in zip(one[2:-2], two[2:-2], strict=True)] == [True] * 4


def test_short_objects_are_not_cut() -> None:
    assert ObjectInterner().intern(a_body(1, note="")) == a_body(1, note="")
