from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarragon.localcluster.schema.schema import StructuralSchema
from tarragon.localcluster.schema.structural import structural_faults

Json = dict[str, Any]


def of_spec(**properties: Any) -> StructuralSchema:
    return StructuralSchema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}},
    )


def faults(schema: StructuralSchema, **spec: Any) -> dict[str, str]:
    return {fault.field: fault.message for fault in schema.validate({"spec": spec})}


def test_unknown_fields_are_dropped_and_their_paths_returned() -> None:
    schema = of_spec(
        known={"type": "integer"},
        items={"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
    )
    thing = {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "x", "anything": {"goes": 1}},
        "spec": {"known": 1, "unknown": 2, "items": [{"a": "1", "b": "2"}]},
        "extra": {},
    }

    unknown = schema.prune(thing)

    assert sorted(unknown) == ["extra", "spec.items[0].b", "spec.unknown"]
    assert thing == {
        "apiVersion": "v1",
        "kind": "X",
        "metadata": {"name": "x", "anything": {"goes": 1}},
        "spec": {"known": 1, "items": [{"a": "1"}]},
    }


def test_preserved_fields_are_kept_but_pruned_where_they_are_declared() -> None:
    schema = of_spec(
        free={
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {"strict": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        }
    )
    thing = {"spec": {"free": {"any": {"thing": 1}, "strict": {"a": 1, "b": 2}}}}

    assert schema.prune(thing) == ["spec.free.strict.b"]
    assert thing == {"spec": {"free": {"any": {"thing": 1}, "strict": {"a": 1}}}}


def test_a_map_keeps_all_its_keys() -> None:
    schema = of_spec(
        map={"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "integer"}}}}
    )
    thing = {"spec": {"map": {"x": {"a": 1, "b": 2}, "y": {}}}}

    assert schema.prune(thing) == ["spec.map.x.b"]
    assert thing == {"spec": {"map": {"x": {"a": 1}, "y": {}}}}


def test_an_embedded_object_keeps_its_type_and_metadata() -> None:
    schema = of_spec(
        template={"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"spec": {"type": "object"}}}
    )
    thing = {"spec": {"template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "other": 1}}}

    assert schema.prune(thing) == ["spec.template.other"]
    assert thing["spec"]["template"] == {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}}


def test_defaults_fill_in_from_the_outside_inwards() -> None:
    schema = of_spec(
        colour={"type": "string", "default": "green"},
        outer={"type": "object", "default": {}, "properties": {"inner": {"type": "integer", "default": 5}}},
        absent={"type": "object", "properties": {"inner": {"type": "integer", "default": 5}}},
        list={"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}},
    )
    thing: Json = {"spec": {"list": [{}, {"n": 2}]}}

    schema.default(thing)

    assert thing == {"spec": {"colour": "green", "outer": {"inner": 5}, "list": [{"n": 1}, {"n": 2}]}}


def test_objects_do_not_share_a_default_value() -> None:
    schema = of_spec(list={"type": "array", "items": {"type": "integer"}, "default": [1]})
    first: Json = {"spec": {}}
    second: Json = {"spec": {}}
    schema.default(first)
    first["spec"]["list"].append(2)

    schema.default(second)

    assert second["spec"]["list"] == [1]


def test_a_null_that_is_not_allowed_is_dropped_or_replaced_by_the_default() -> None:
    schema = of_spec(
        plain={"type": "string"},
        nullable={"type": "string", "nullable": True},
        defaulted={"type": "string", "default": "x"},
        both={"type": "string", "nullable": True, "default": "x"},
    )
    thing: Json = {"spec": {"plain": None, "nullable": None, "defaulted": None, "both": None}}

    schema.default(thing)

    assert thing == {"spec": {"nullable": None, "defaulted": "x", "both": None}}


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, "1", 'Invalid value: "string": spec.x in body must be of type integer: "string"'),
        ({"type": "integer"}, 1.5, 'Invalid value: "number": spec.x in body must be of type integer: "number"'),
        ({"type": "integer"}, True, 'Invalid value: "boolean": spec.x in body must be of type integer: "boolean"'),
        ({"type": "string"}, None, 'Invalid value: "null": spec.x in body must be of type string: "null"'),
        ({"type": "object"}, [], 'Invalid value: "array": spec.x in body must be of type object: "array"'),
        (
            {"x-kubernetes-int-or-string": True},
            {},
            'Invalid value: "object": spec.x in body must be of type integer,string: "object"',
        ),
        (
            {"type": "integer", "minimum": 0},
            -1,
            "Invalid value: -1: spec.x in body should be greater than or equal to 0",
        ),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            0,
            "Invalid value: 0: spec.x in body should be greater than 0",
        ),
        ({"type": "number", "maximum": 1}, 1.5, "Invalid value: 1.5: spec.x in body should be less than or equal to 1"),
        ({"type": "number", "multipleOf": 0.5}, 0.3, "Invalid value: 0.3: spec.x in body should be a multiple of 0.5"),
        ({"type": "string", "enum": ["a", "b"]}, "c", 'Unsupported value: "c": supported values: "a", "b"'),
        (
            {"type": "string", "pattern": "^[a-z]+$"},
            "A",
            "Invalid value: \"A\": spec.x in body should match '^[a-z]+$'",
        ),
        ({"type": "string", "minLength": 2}, "a", 'Invalid value: "a": spec.x in body should be at least 2 chars long'),
        ({"type": "string", "maxLength": 2}, "abc", "Too long: may not be more than 2 bytes"),
        (
            {"type": "string", "format": "date-time"},
            "soon",
            'Invalid value: "soon": spec.x in body must be of type date-time: "soon"',
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "minItems": 1},
            [],
            "Invalid value: 0: spec.x in body should have at least 1 items",
        ),
        (
            {"type": "array", "items": {"type": "integer"}, "maxItems": 1},
            [1, 2],
            "Too many: 2: must have at most 1 items",
        ),
    ],
)
def test_a_fault_is_worded_as_kube_apiserver_words_it(schema: Json, value: Any, message: str) -> None:
    assert faults(of_spec(x=schema), x=value) == {"spec.x": message}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"type": "number"}, 2),
        ({"x-kubernetes-int-or-string": True}, "50%"),
        ({"type": "string", "nullable": True}, None),
        ({"type": "string", "format": "date-time"}, "2026-11-21T10:00:00Z"),
        ({"type": "string", "format": "something-new"}, "x"),
        ({"type": "integer", "enum": [1, 2]}, 2),
        ({"type": "string", "pattern": "b"}, "abc"),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, ["a", "b"]),
        ({}, {"any": "thing"}),
    ],
)
def test_a_valid_value_has_no_fault(schema: Json, value: Any) -> None:
    assert faults(of_spec(x=schema), x=value) == {}


def test_every_fault_is_reported_with_its_path() -> None:
    element = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "n": {"type": "integer"}}}
    schema = of_spec(
        list={
            "type": "array",
            "items": element,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
        },
        set={"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
        map={"type": "object", "additionalProperties": {"type": "integer"}},
    )

    found = faults(schema, list=[{"k": "a"}, {"n": "x"}, {"k": "a"}], set=["a", "a"], map={"b": "c"})

    assert found == {
        "spec.list[1].k": "Required value",
        "spec.list[1].n": 'Invalid value: "string": spec.list[1].n in body must be of type integer: "string"',
        "spec.list[2]": 'Duplicate value: {"k":"a"}',
        "spec.set[1]": 'Duplicate value: "a"',
        "spec.map.b": 'Invalid value: "string": spec.map.b in body must be of type integer: "string"',
    }


@pytest.mark.parametrize(
    ("value", "messages"),
    [
        ({"a": "1"}, []),
        (
            {},
            [
                'Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found none valid',
                "Required value",
            ],
        ),
        (
            {"a": "1", "b": "2"},
            ['Invalid value: "": "spec.x" must validate one and only one schema (oneOf). Found 2 valid alternatives'],
        ),
    ],
)
def test_one_of_requires_exactly_one_branch(value: Json, messages: list[str]) -> None:
    schema = of_spec(
        x={
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        }
    )

    assert [fault.message for fault in schema.validate({"spec": {"x": value}})] == messages


def test_any_of_all_of_and_not_are_checked() -> None:
    number = {"type": "integer"}
    schema = of_spec(
        any={**number, "anyOf": [{"minimum": 10}, {"maximum": 0}]},
        all={**number, "allOf": [{"minimum": 10}, {"maximum": 20}]},
        none={**number, "not": {"minimum": 10}},
    )

    assert faults(schema, any=-5, all=15, none=5) == {}
    messages = [fault.message for fault in schema.validate({"spec": {"any": 5, "all": 5, "none": 15}})]
    assert 'Invalid value: "": "spec.any" must validate at least one schema (anyOf)' in messages
    assert 'Invalid value: "": "spec.all" must validate all the schemas (allOf)' in messages
    assert 'Invalid value: "": "spec.none" must not validate the schema (not)' in messages


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.sampled_from(["", "a", "k", "((", "set"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "k", "metadata", "kind"]), inner, max_size=3)
    ),
    max_leaves=8,
)
KEYWORDS = st.sampled_from(
    [
        "type",
        "minimum",
        "maximum",
        "multipleOf",
        "minLength",
        "maxItems",
        "pattern",
        "format",
        "enum",
        "default",
        "nullable",
        "required",
        "additionalProperties",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
        "x-kubernetes-int-or-string",
        "exclusiveMinimum",
        "not",
        "allOf",
        "oneOf",
    ]
)
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean"])


def a_schema(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    children = st.fixed_dictionaries(
        {"type": TYPES},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b", "k", "metadata"]), inner, max_size=3),
            "items": inner,
            "additionalProperties": inner,
            "anyOf": st.lists(inner, max_size=2),
        },
    )
    return st.builds(lambda whole, odd: {**whole, **odd}, children, st.dictionaries(KEYWORDS, ANY_JSON, max_size=2))


SCHEMAS = st.recursive(st.fixed_dictionaries({"type": TYPES}), a_schema, max_leaves=6)


@given(SCHEMAS, st.dictionaries(st.sampled_from(["a", "b", "k", "spec"]), ANY_JSON, max_size=3))
def test_an_accepted_schema_can_process_every_object(schema: Json, thing: Json) -> None:
    if list(structural_faults(schema, "schema")):
        return
    compiled = StructuralSchema(schema)

    compiled.prune(thing)
    compiled.default(thing)
    found = compiled.validate(thing)

    assert all(fault.message and fault.reason for fault in found)


@given(SCHEMAS, st.dictionaries(st.sampled_from(["a", "b", "k", "spec"]), ANY_JSON, max_size=3))
def test_pruning_and_defaulting_again_changes_nothing(schema: Json, thing: Json) -> None:
    if list(structural_faults(schema, "schema")):
        return
    compiled = StructuralSchema(schema)
    compiled.prune(thing)
    compiled.default(thing)
    compiled.prune(thing)  # a default may have unknown fields
    once = copy.deepcopy(thing)

    compiled.prune(thing)
    compiled.default(thing)

    assert thing == once


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ({"properties": {}}, "s.type"),
        ({"type": "thing"}, "s.type"),
        ({"type": "array"}, "s.items"),
        ({"type": "string", "pattern": "(("}, "s.pattern"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}, "s"),
        ({"type": "object", "$ref": "#/x"}, "s.$ref"),
        ({"type": "integer", "minimum": "0"}, "s.minimum"),
        ({"type": "object", "properties": {"a": {}}}, "s.properties[a].type"),
        ({"type": "object", "anyOf": [{"pattern": "(("}]}, "s.anyOf[0].pattern"),
        ("string", "s"),
    ],
)
def test_a_schema_that_is_not_structural_is_rejected_with_the_path(schema: Any, place: str) -> None:
    assert [fault.field for fault in structural_faults(schema, "s")] == [place]
