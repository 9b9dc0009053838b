"""YAML for people: fields in their order, long lines whole, programs and other texts of several lines as blocks."""

from __future__ import annotations

import sys

import yaml

from tarragon.base.escaping import escaped, has_controls
from tarragon.kube.meta import Json

_TEXT = "tag:yaml.org,2002:str"


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - yaml's signature
        """A value that is used twice is written twice: kubectl's users know no anchors."""
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    """Where the writer can't show it as a block (a tab, a space at the end of a line) it takes quotes itself.

    Within double quotes, and only there, `escaped` writes a control character as YAML does.
    """
    if has_controls(value):
        return dumper.represent_scalar(_TEXT, value, style='"')
    return dumper.represent_scalar(_TEXT, value, style="|" if "\n" in value.rstrip("\n") else None)


_Dumper.add_representer(str, _text)


def dumped(value: Json) -> str:
    text: str = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=sys.maxsize
    )
    return escaped(text.rstrip())
