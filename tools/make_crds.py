#!/usr/bin/env python3
"""Write deploy/crd-*.yaml: the CustomResourceDefinition of every framework, generated from the code.

python tools/make_crds.py [--check]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tarragon.frameworks.registry import FRAMEWORKS
from tools.generated_files import write_or_check

FOLDER = Path(__file__).parent.parent / "deploy"
HEAD = "# Written by tools/make_crds.py; do not edit.\n"


class Plain(yaml.SafeDumper):
    """Writes YAML without anchors, so that equal schemas are repeated and can be read in place."""

    def ignore_aliases(self, _: Any) -> bool:
        return True


def main(arguments: list[str]) -> int:
    return write_or_check(dict(rendered()), arguments, "make_crds.py")


def rendered() -> Iterator[tuple[Path, str]]:
    for framework in FRAMEWORKS:
        crd = framework.crd()
        text = yaml.dump(crd, Dumper=Plain, sort_keys=False, width=120)
        yield FOLDER / f"crd-{crd['metadata']['name']}.yaml", HEAD + text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
