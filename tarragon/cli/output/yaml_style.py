"""YAML in kubectl's style: fields keep their order, long lines are not folded, multi-line strings are blocks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence

import yaml

from tarragon.base.escaping import escaped, has_controls
from tarragon.kube.meta import Json

_TEXT = "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        """Writes repeated values in full: kubectl writes no anchors."""
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Writes a multi-line string as a block; PyYAML falls back to quotes for tabs and trailing spaces.

    A string with control characters is double-quoted: only there does `escaped` write them as YAML does.
    """
    if has_controls(value):
        return dumper.represent_scalar(_TEXT, value, style='"')
    return dumper.represent_scalar(_TEXT, value, style="|" if "\n" in value.rstrip("\n") else None)


_Dumper.add_representer(str, _represent_text)


def yaml_dump(value: Json) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=sys.maxsize
    )
    return escaped(text.rstrip("\n"))  # not every space: a value may end with one


def commented_yaml(document: Mapping[str, Json], comments: Mapping[str, Sequence[str]]) -> str:
    """Returns YAML with comments above fields, by their paths; lists of strings are in one line."""
    return "\n".join(_commented(document, comments, ""))


def _commented(value: Mapping[str, Json], comments: Mapping[str, Sequence[str]], path: str) -> Iterator[str]:
    for name, inner in value.items():
        here = f"{path}.{name}" if path else name
        yield from (f"# {line}" for line in comments.get(here, ()))
        match inner:
            case Mapping() if inner:
                yield f"{name}:"
                yield from (f"  {line}" for line in _commented(inner, comments, here))
            case [{}, *_]:
                yield f"{name}:"
                for number, element in enumerate(inner):
                    first, *rest = _commented(element, comments, f"{here}[{number}]")
                    yield f"  - {first}"
                    yield from (f"    {line}" for line in rest)
            case [*elements]:
                yield f"{name}: {escaped(json.dumps(elements, ensure_ascii=False))}"
            case _:
                yield from yaml_dump({name: inner}).split("\n")
