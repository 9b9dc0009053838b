"""TFJobs that somebody has written to do harm: too deep, too long, of wrong types, with unexpected characters."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

Json = dict[str, Any]

DEPTHS = (90, 110, 130, 130, 500, 500, 985, 985, 1_500, 1_500, 3_000)
"""Below and above what we read, what Python recurses to, and what kube-apiserver stores."""
ODD_TEXTS = (
    "",
    " ",
    "\x1b]0;title\x07\x1b[31m",
    "\u202edlrow",
    "\u2028",
    "\x00",
    '{}[]"\\',
    "null",
    "\U0001f409",
    "a" * 20_000,
)
NUMBERS = (0, -1, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 1e308, 5e-324, -0.0, 0.1)
SURROGATE = "@surrogate@"
"""Becomes a lone surrogate in the text, which no encoder would write."""
DEEP = "@deep@"
_HALF = 0.5


LISTS = ("[", "]")
OBJECTS = ('{"a":', "}")
BOTH = ('{"a":[', "]}")
Form = tuple[str, str]


def hostile_jobs(seed: int, count: int, forms: Sequence[Form]) -> Iterator[tuple[str, bytes]]:
    """Names and texts; the same for the same seed. What is deep is of these forms."""
    dice = random.Random(seed)
    for number in range(count):
        name = f"hostile-{number}"
        yield name, _text(_job(dice, name), dice, forms)


def hostile_statuses(seed: int, forms: Sequence[Form]) -> Iterator[bytes]:
    """Merge patches of a status."""
    dice = random.Random(seed)
    while True:
        ours = {name: _odd(dice) for name in ("state", "ready", "admission", "restarts", "accepted", "record")}
        status = {"tarragon": ours, "conditions": _odd(dice), "zz": _odd(dice)}
        yield _text({"status": dict(dice.sample(list(status.items()), dice.randint(1, 3)))}, dice, forms)


def nested(levels: int, form: Form = LISTS) -> str:
    opening, closing = form
    return opening * levels + "1" + closing * levels


def _job(dice: random.Random, name: str) -> Json:
    container: Json = {"name": "tensorflow", "image": "i", "env": [{"name": "A", "value": "b"}], "zz": 1}
    template: Json = {"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [container], "nodeSelector": {}}}
    groups = {kind: {"replicas": 1, "restartPolicy": "Never", "template": template} for kind in ("PS", "Worker")}
    spec: Json = {"tfReplicaSpecs": groups, "runPolicy": {"cleanPodPolicy": "None"}, "zz": {"a": [1]}}
    body: Json = json.loads(json.dumps({"spec": spec}))
    for _ in range(dice.randint(1, 3)):
        _spoil(dice, body)
    annotations = {
        key: dice.choice((nested(dice.choice(DEPTHS), OBJECTS), nested(dice.choice(DEPTHS)), *ODD_TEXTS))
        for key in dice.sample(ANNOTATIONS, dice.randint(0, 2))
    }
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": metadata, **body}


ANNOTATIONS = (
    "kubectl.kubernetes.io/last-applied-configuration",
    "tarragon.dev/generation",
    "tarragon.dev/environments",
    "tarragon.dev/resize",
    "tarragon.dev/checkpoint-seconds",
    "tarragon.dev/adopt",
)


def _spoil(dice: random.Random, body: Json) -> None:
    """Puts something odd in the place of some value."""
    places: list[tuple[Any, Any]] = []

    def gather(value: Any) -> None:
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for step, child in items:
            places.append((value, step))
            gather(child)

    gather(body)
    place, step = dice.choice(places)
    place[step] = _odd(dice)


def _odd(dice: random.Random) -> Any:
    return dice.choice(
        (
            None,
            DEEP,
            DEEP,
            SURROGATE,
            {SURROGATE: 1},
            [],
            {},
            [[[]]],
            {"": {"": ""}},
            True,
            [None] * dice.randint(1, 2_000),
            {f"k{number}": {} for number in range(dice.randint(1, 500))},
            *dice.sample(ODD_TEXTS, 3),
            *dice.sample(NUMBERS, 3),
        )
    )


def _text(body: Mapping[str, Any], dice: random.Random, forms: Sequence[Form]) -> bytes:
    text = json.dumps(body, ensure_ascii=dice.random() < _HALF)
    deep = nested(dice.choice(DEPTHS), dice.choice(forms))
    return text.replace(f'"{DEEP}"', deep).replace(SURROGATE, "\\ud800").encode()
