"""A share of a GPU has one meaning in each of its forms, and every violation is reported with its path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.base.gpu_constraints import GpuConstraints
from tarragon.kube.core import Pod
from tarragon.kube.field_reader import INT64
from tarragon.kube.scheduling.gpu_shares import (
    GpuShare,
    ignored_settings,
    is_share_name,
    kubeshare_field,
    share_of,
    share_of_pod,
    share_of_template,
    share_problems,
)

Json = dict[str, Any]

MIB = 2**20
GIB = 2**30
WHOLE = "nvidia.com/gpu"
MEMORY, PERCENTAGE, CORES = "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"
EXAMPLE = 'write for example "0.5"'


def annotated(**marks: Any) -> Json:
    """A pod of KubeShare 1. Without a request or limit, these are 0.5 and 1.0."""
    marks = {"gpu_request": "0.5", "gpu_limit": "1.0", **marks}
    return pod(annotations={f"kubeshare/{name}": value for name, value in marks.items() if value is not None})


def labelled(**marks: Any) -> Json:
    """A pod of KubeShare 2."""
    return pod(labels={f"sharedgpu/{name}": value for name, value in marks.items()})


def limited(*containers: Mapping[str, Any]) -> Json:
    """A pod whose containers have these limits."""
    return pod(*containers)


def pod(*containers: Mapping[str, Any], init: tuple[Mapping[str, Any], ...] = (), **metadata: Any) -> Json:
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"resources": {"limits": dict(limits)}} for limits in containers],
            "initContainers": [{"resources": {"limits": dict(limits)}} for limits in init],
        },
    }


def problems(template: Any, path: str = "t") -> list[str]:
    return [str(problem) for problem in share_problems(path, template)]


def share(**fields: Any) -> GpuShare:
    return GpuShare(**fields)


SHARES: list[tuple[Json, GpuShare]] = [
    (annotated(), share(request=500, limit=1000)),
    (annotated(gpu_mem="3189243904"), share(request=500, limit=1000, memory=3189243904)),
    (annotated(gpu_mem=str(INT64)), share(request=500, limit=1000, memory=INT64)),
    (annotated(gpu_mem="0"), share(request=500, limit=1000)),
    (annotated(gpu_mem=""), share(request=500, limit=1000)),
    (annotated(gpu_request="0.0"), share(request=1, limit=1000)),
    (annotated(gpu_request="0", gpu_limit="0"), share(request=1, limit=1)),
    (annotated(gpu_request="1", gpu_limit="1"), share(request=1000, limit=1000)),
    (annotated(gpu_request="0.07", gpu_limit=".1"), share(request=70, limit=100)),
    (annotated(gpu_request="0.0001", gpu_limit="0.3333"), share(request=1, limit=334)),
    (annotated(gpu_request="1e-1", gpu_limit="+1."), share(request=100, limit=1000)),
    (annotated(GPUID="abcde"), share(request=500, limit=1000, constraints=GpuConstraints(gpu_id="abcde"))),
    (
        annotated(**{"sched_affinity": "red", "sched_anti-affinity": "green", "sched_exclusion": "blue"}),
        share(
            request=500,
            limit=1000,
            constraints=GpuConstraints(affinity="red", anti_affinity="green", exclusion="blue"),
        ),
    ),
    (labelled(gpu_request="0.5", gpu_limit="1.0"), share(request=500, limit=1000)),
    (labelled(gpu_limit="0.5"), share(request=1, limit=500)),
    (
        labelled(gpu_request="0.3", gpu_limit="0.5", gpu_mem="1073741824", gpu_model="Tesla-V100"),
        share(request=300, limit=500, memory=GIB, model="Tesla-V100"),
    ),
    (
        labelled(gpu_limit="1", priority="100", group_name="a", group_headcount="5", group_threshold="0.2"),
        share(request=1, limit=1000),
    ),
    (limited({WHOLE: 1, MEMORY: 3000, CORES: 30}), share(request=300, limit=300, memory=3000 * MIB)),
    (limited({WHOLE: "1", MEMORY: "3k"}), share(request=1, limit=1000, memory=3000 * MIB)),
    (limited({MEMORY: 3000}), share(request=1, limit=1000, memory=3000 * MIB)),
    (limited({WHOLE: 1, MEMORY: 3000, CORES: 0}), share(request=1, limit=1000, memory=3000 * MIB)),
    (limited({WHOLE: 1, CORES: 30}), share(request=300, limit=300)),
    (limited({WHOLE: 1, CORES: 100}), share(request=1000, limit=1000)),
    (limited({WHOLE: 1, PERCENTAGE: 50}), share(request=500, limit=1000)),
    (limited({WHOLE: 1, PERCENTAGE: 50, CORES: 30}), share(request=500, limit=500)),
    (limited({WHOLE: 1, PERCENTAGE: 20, CORES: 30}), share(request=300, limit=300)),
    (limited({WHOLE: 1, PERCENTAGE: 50, MEMORY: 1}), share(request=1, limit=1000, memory=MIB)),
    (limited({"cpu": 1}, {WHOLE: 1, MEMORY: 1}), share(request=1, limit=1000, memory=MIB)),
    (
        {"spec": {"containers": [{"resources": {"requests": {MEMORY: 1}}}]}},
        share(request=1, limit=1000, memory=MIB),
    ),
]


@pytest.mark.parametrize(("template", "expected"), SHARES)
def test_every_form_has_one_meaning_for_templates_and_for_pods(template: Json, expected: GpuShare) -> None:
    assert share_of_template(template) == expected
    assert share_of_pod(msgspec.convert(template, Pod)) == expected
    assert problems(template) == []


@pytest.mark.parametrize(
    "template",
    [
        {},
        pod({WHOLE: 1}),
        pod({WHOLE: 4, "nvidia.com/priority": 1}),
        pod({WHOLE: 1, MEMORY: 0, CORES: "0"}),
        pod({"nvidia.com/gpu.shared": 1}),
        pod({"nvidia.com/mig-1g.5gb": 1}),
        pod(annotations={"gpu_request": "0.5", "mykubeshare/gpu_request": "1"}, labels={"kubeshare": "a"}),
        pod(annotations={"kubeshare/gpu_request": "", "kubeshare/gpu_mem": ""}),
        pod({WHOLE: 1}, labels={"sharedgpu/gpu_request": "0", "sharedgpu/gpu_limit": "0.0"}),
        labelled(gpu_limit="0", gpu_mem="1", gpu_model="a"),
        labelled(priority="0", group_name="a"),
    ],
)
def test_a_pod_that_requests_no_share_is_an_ordinary_one(template: Json) -> None:
    assert share_of_template(template) is None
    assert share_of_pod(msgspec.convert(template, Pod)) is None
    assert problems(template) == []


def at(name: str, field: str = "annotations") -> str:
    return f't.metadata.{field}["{name}"]'


def on(index: int, name: str, kind: str = "containers") -> str:
    return f't.spec.{kind}[{index}].resources.limits["{name}"]'


REQUEST, LIMIT = at("kubeshare/gpu_request"), at("kubeshare/gpu_limit")
SECOND_FORM = (
    "requests a second share of a GPU; use one of the annotations kubeshare/…, the labels sharedgpu/… and the "
    "resources nvidia.com/gpumem and nvidia.com/gpucores"
)
NO_NUMBER = "must be a number from 0 to 1, not the text"
NO_WHOLE = "can't be requested together with a share of a GPU; remove one of the two"

VIOLATIONS: list[tuple[Json, list[str]]] = [
    (annotated(gpu_request=None), [f"{REQUEST}: is missing; {EXAMPLE}"]),
    (annotated(gpu_limit=""), [f"{LIMIT}: is missing; {EXAMPLE}"]),
    (pod(annotations={"kubeshare/gpu_mem": "1"}), [f"{place}: is missing; {EXAMPLE}" for place in (REQUEST, LIMIT)]),
    (
        pod(annotations={"kubeshare/sched_affinity": "a"}),
        [f"{place}: is missing; {EXAMPLE}" for place in (REQUEST, LIMIT)],
    ),
    *(
        (annotated(gpu_request=text), [f'{REQUEST}: {NO_NUMBER} "{text}"; {EXAMPLE}'])
        for text in ("-0.5", "1.5", "500m", "half", " 0.5", "nan", "inf", "0x1", "\u0661", "1_0", "1e400")
    ),
    (
        annotated(gpu_limit="2.0"),
        [f'{LIMIT}: {NO_NUMBER} "2.0"; ask for whole GPUs with nvidia.com/gpu: 2'],
    ),
    (
        annotated(gpu_request="0.6", gpu_limit="0.5"),
        [f"{LIMIT}: must be 0.6 or more, as kubeshare/gpu_request is, not 0.5"],
    ),
    (annotated(gpu_request=0.5), [f'{REQUEST}: must be text, not 0.5; write it in quotes: "0.5"']),
    *(
        (
            annotated(gpu_mem=text),
            [
                (
                    f'{at("kubeshare/gpu_mem")}: must be a whole number of bytes, not the text "{text}"; '
                    'write "1073741824" for 1 GiB'
                )
            ],
        )
        for text in ("1Gi", "-1", "1.0", str(INT64 + 1), "9" * 30)
    ),
    *(
        (
            annotated(GPUID=text),
            [f'{at("kubeshare/GPUID")}: must be 5 lower-case letters, not the text "{text}"'],
        )
        for text in ("ABCDE", "abcd", "abcdef", "abcd1", "abcdé")
    ),
    (
        labelled(gpu_request="0.5"),
        [f"{at('sharedgpu/gpu_limit', 'labels')}: is missing; {EXAMPLE}"],
    ),
    (labelled(gpu_model="a"), [f"{at('sharedgpu/gpu_limit', 'labels')}: is missing; {EXAMPLE}"]),
    (
        labelled(gpu_request="2.0", gpu_limit="2.0"),
        [
            f'{at(name, "labels")}: {NO_NUMBER} "2.0"; ask for whole GPUs with nvidia.com/gpu: 2'
            for name in ("sharedgpu/gpu_request", "sharedgpu/gpu_limit")
        ],
    ),
    (
        pod(
            {MEMORY: 1},
            annotations={"kubeshare/gpu_request": "1", "kubeshare/gpu_limit": "1"},
            labels={"sharedgpu/gpu_limit": "1"},
        ),
        [f"{at('sharedgpu/gpu_limit', 'labels')}: {SECOND_FORM}", f"{on(0, MEMORY)}: {SECOND_FORM}"],
    ),
    (
        {**pod({WHOLE: 1}, {WHOLE: "2"}), "metadata": annotated()["metadata"]},
        [f"{on(i, WHOLE)}: {NO_WHOLE}" for i in (0, 1)],
    ),
    (
        {**pod(init=({WHOLE: 1},)), "metadata": labelled(gpu_limit="1")["metadata"]},
        [f"{on(0, WHOLE, 'initContainers')}: {NO_WHOLE}"],
    ),
    (
        limited({WHOLE: 2, MEMORY: 1}),
        [
            (
                f"{on(0, WHOLE)}: must be 1 beside nvidia.com/gpumem or nvidia.com/gpucores; "
                "only one GPU of a pod can be shared"
            )
        ],
    ),
    (limited({WHOLE: 1, MEMORY: 1}, {WHOLE: 1}), [f"{on(1, WHOLE)}: {NO_WHOLE}"]),
    (
        limited({MEMORY: 1}, {MEMORY: 1, CORES: 2}),
        [
            f"{on(1, name)}: is requested by a second container; only one container of a pod can share a GPU"
            for name in (MEMORY, CORES)
        ],
    ),
    (
        pod(init=({MEMORY: 1},)),
        [f"{on(0, MEMORY, 'initContainers')}: is requested by an init container; move it to a container"],
    ),
    (limited({CORES: 101}), [f"{on(0, CORES)}: must be a percentage from 1 to 100, not 101"]),
    (limited({PERCENTAGE: "1k"}), [f'{on(0, PERCENTAGE)}: must be a percentage from 1 to 100, not the text "1k"']),
    (limited({MEMORY: 0.5}), [f"{on(0, MEMORY)}: must be a whole number, not 0.5"]),
    (limited({MEMORY: -1}), [f"{on(0, MEMORY)}: must be a whole number, not -1"]),
    (limited({MEMORY: "much"}), [f'{on(0, MEMORY)}: must be a whole number, not the text "much"']),
    (limited({MEMORY: [1]}), [f"{on(0, MEMORY)}: must be a whole number, not a list"]),
    (limited({MEMORY: INT64}), [f"{on(0, MEMORY)}: must be a number of MiB, not {INT64}"]),
]


@pytest.mark.parametrize(("template", "expected"), VIOLATIONS)
def test_every_violation_is_reported_with_its_path_and_no_share_is_read(template: Json, expected: list[str]) -> None:
    assert problems(template) == expected
    assert share_of_template(template) is None


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (
            annotated(gpu_memory="1"),
            [f"{at('kubeshare/gpu_memory')}: unknown annotation; did you mean kubeshare/gpu_mem?"],
        ),
        (annotated(gpuid="abcde"), [f"{at('kubeshare/gpuid')}: unknown annotation; did you mean kubeshare/GPUID?"]),
        (
            annotated(x="1"),
            [
                (
                    f"{at('kubeshare/x')}: unknown annotation; known are gpu_request, gpu_limit, gpu_mem, GPUID, "
                    "sched_affinity, sched_anti-affinity, sched_exclusion"
                )
            ],
        ),
        (
            labelled(gpu_limit="1", groupname="a"),
            [f"{at('sharedgpu/groupname', 'labels')}: unknown label; did you mean sharedgpu/group_name?"],
        ),
        (
            pod(labels={"kubeshare/gpu_request": "1"}, annotations={"sharedgpu/gpu_mem": "1"}),
            [
                f"{at('sharedgpu/gpu_mem')}: must be a label; move it to metadata.labels of the pod template",
                (
                    f"{at('kubeshare/gpu_request', 'labels')}: must be an annotation; "
                    "move it to metadata.annotations of the pod template"
                ),
            ],
        ),
        (
            {"spec": {"containers": [{"resources": {"requests": {"kubeshare/gpu": 1}}}]}},
            [
                (
                    't.spec.containers[0].resources.requests["kubeshare/gpu"]: is not a resource; '
                    "write kubeshare/gpu_request as an annotation of the pod template"
                )
            ],
        ),
        (
            pod({"sharedgpu/gpu_limit": "0.5"}),
            [
                (
                    f"{on(0, 'sharedgpu/gpu_limit')}: is not a resource; "
                    "write sharedgpu/gpu_limit as a label of the pod template"
                )
            ],
        ),
    ],
)
def test_a_name_that_is_misspelled_or_misplaced_is_reported(template: Json, expected: list[str]) -> None:
    assert problems(template) == expected


def test_what_kubeshare_itself_writes_on_a_pod_does_not_hide_its_share() -> None:
    found = share_of(
        {"sharedgpu/gpu_uuid": "GPU-1", "sharedgpu/gpu_mem": "5", "sharedgpu/cell_id": "a"},
        {"sharedgpu/gpu_limit": "1", "sharedgpu/gpu_request": "0.5", "kubeshare/role": "b"},
    )

    assert found == share(request=500, limit=1000)


def test_an_object_with_the_fields_of_a_pod_has_paths_from_its_top() -> None:
    assert problems(annotated(gpu_limit=None), "") == [
        f'metadata.annotations["kubeshare/gpu_limit"]: is missing; {EXAMPLE}'
    ]


def test_settings_without_effect_are_listed_with_the_reason() -> None:
    template = pod(
        {WHOLE: 1, "nvidia.com/priority": 0}, labels={"sharedgpu/priority": "1", "sharedgpu/group_name": "a"}
    )

    assert [str(problem) for problem in ignored_settings("t", template)] == [
        f"{at('sharedgpu/priority', 'labels')}: is ignored: the priority is that of the job's PriorityClass; remove it",
        f"{at('sharedgpu/group_name', 'labels')}: is ignored: the job itself is scheduled as a gang; remove it",
        f"{on(0, 'nvidia.com/priority')}: is ignored: the priority is that of the job's PriorityClass; remove it",
    ]
    assert list(ignored_settings("t", labelled(gpu_limit="1"))) == []


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("kubeshare/gpu_request", "annotations"),
        ("kubeshare/anything", "annotations"),
        ("sharedgpu/priority", "labels"),
        (MEMORY, None),
        (PERCENTAGE, None),
        (CORES, None),
        ("nvidia.com/priority", None),
    ],
)
def test_a_name_is_that_of_a_share_by_its_prefix_or_as_a_resource_of_hami(name: str, field: str | None) -> None:
    assert is_share_name(name)
    assert kubeshare_field(name) == field


@pytest.mark.parametrize("name", [WHOLE, "kubeshare", "mykubeshare/gpu_request", "kubeshare.example.org/x"])
def test_what_only_resembles_such_a_name_is_none(name: str) -> None:
    assert not is_share_name(name)
    assert kubeshare_field(name) is None


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["0", "0.5", "1", "1.0", "2.0", "0.25", "100", "abcde", "1Gi"])
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(SCALARS, inner, max_size=3), max_leaves=8
)
NAMES = st.sampled_from(
    [
        *(f"kubeshare/{name}" for name in ("gpu_request", "gpu_limit", "gpu_mem", "GPUID", "sched_affinity")),
        *(f"sharedgpu/{name}" for name in ("gpu_request", "gpu_limit", "gpu_mem", "gpu_model", "priority")),
        *(WHOLE, MEMORY, PERCENTAGE, CORES),
    ]
)
MARKS = st.dictionaries(NAMES | SCALARS, SCALARS | ANYTHING, max_size=5) | ANYTHING
CONTAINERS = st.lists(
    ANYTHING
    | st.fixed_dictionaries({"resources": ANYTHING | st.fixed_dictionaries({"limits": MARKS, "requests": MARKS})}),
    max_size=3,
)
TEMPLATES = ANYTHING | st.fixed_dictionaries(
    {
        "metadata": ANYTHING | st.fixed_dictionaries({"annotations": MARKS, "labels": MARKS}),
        "spec": ANYTHING | st.fixed_dictionaries({"containers": CONTAINERS, "initContainers": CONTAINERS | ANYTHING}),
    }
)


OF_NAMES = ("unknown ", "must be an annotation", "must be a label", "is not a resource")
"""Problems of names that belong somewhere else, which `share_of_template` does not look at."""


@given(template=TEMPLATES)
def test_any_template_has_either_problems_or_a_possible_share_or_none(template: Any) -> None:
    found = share_of_template(template)
    wrong = [problem.message for problem in share_problems("t", template)]
    list(ignored_settings("t", template))

    if found is not None:
        assert 1 <= found.request <= found.limit <= 1000
        assert found.memory is None or 1 <= found.memory <= INT64
        assert not [message for message in wrong if not message.startswith(OF_NAMES)]


EXACT = st.sampled_from(["0", "0.1", "0.25", "0.5", "0.75", "1", "1.0", "1.5", "2.0", "-1", "x", "", None])
AMOUNTS = st.sampled_from([0, 1, 30, "50", 100, 101, 0.5, "x", None])
FORMS = st.builds(
    lambda one, two, three, init: {
        "metadata": {
            "annotations": {f"kubeshare/{name}": text for name, text in one.items() if text is not None},
            "labels": {f"sharedgpu/{name}": text for name, text in two.items() if text is not None},
        },
        "spec": pod({name: amount for name, amount in three.items() if amount is not None}, init=init)["spec"],
    },
    one=st.just({}) | st.fixed_dictionaries({"gpu_request": EXACT, "gpu_limit": EXACT}),
    two=st.just({}) | st.fixed_dictionaries({"gpu_request": EXACT, "gpu_limit": EXACT}),
    three=st.just({}) | st.fixed_dictionaries({WHOLE: AMOUNTS, MEMORY: AMOUNTS, CORES: AMOUNTS}),
    init=st.sampled_from([(), ({WHOLE: 1},), ({MEMORY: 1},)]),
)


@given(template=FORMS)
def test_a_request_gives_a_share_exactly_when_it_has_no_problem(template: Json) -> None:
    found = share_of_template(template)
    requests_one = any(
        mark not in (0, "") for name, mark in (
            *template["metadata"]["annotations"].items(),
            *template["metadata"]["labels"].items(),
            *template["spec"]["containers"][0]["resources"]["limits"].items(),
        ) if name != WHOLE
    )  # fmt: skip

    if found is not None:
        assert problems(template) == []
    elif requests_one and not is_switched_off(template["metadata"]["labels"]):
        assert problems(template) != []


def is_switched_off(labels: Mapping[str, str]) -> bool:
    return labels.get("sharedgpu/gpu_limit") == "0" and labels.get("sharedgpu/gpu_request") in {None, "", "0"}
