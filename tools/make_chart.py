#!/usr/bin/env python3
"""Write the Helm chart in deploy/chart: what it installs, from the manifests that kustomize installs.

Written by hand are values.yaml and the templates _helpers.tpl and NOTES.txt.

python tools/make_chart.py [--check]
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

from tarragon import __version__
from tools.chart.templates import templates
from tools.chart.values import schema, table
from tools.generated_files import write_or_check
from tools.make_deploy import DEPLOY

CHART = DEPLOY / "chart"
PAGE = DEPLOY.parent / "docs" / "reference" / "helm-values.md"
HEAD = "# Written by tools/make_chart.py; do not edit.\n"
PAGE_HEAD = """\
<!-- Written by tools/make_chart.py; do not edit. -->

# Values of the Helm chart

[helm.md](../helm.md) says how to install the chart and to give it values. A name or a value that is not allowed is
refused before anything is installed.
"""


def main(arguments: list[str]) -> int:
    return write_or_check(dict(rendered()), arguments, "make_chart.py")


def rendered() -> Iterator[tuple[Path, str]]:
    values = (CHART / "values.yaml").read_text()
    yield CHART / "Chart.yaml", HEAD + yaml.safe_dump(description(), sort_keys=False, width=120)
    yield CHART / "values.schema.json", json.dumps(schema(values), indent=2) + "\n"
    for name, text in templates(yaml.safe_load(values)):
        yield CHART / "templates" / name, HEAD + text
    yield PAGE, "\n".join([PAGE_HEAD, *table(values)]) + "\n"


def description() -> dict[str, object]:
    return {
        "apiVersion": "v2",
        "name": "tarragon",
        "description": "An operator for TFJobs, MPIJobs, JAXJobs and SharePods, with a gang scheduler",
        "type": "application",
        "version": __version__,
        "appVersion": __version__,
        "kubeVersion": ">=1.20.0-0",
        "home": "https://github.com/tarragon-dev/tarragon",
        "keywords": ["machine learning", "TFJob", "MPIJob", "JAXJob", "gang scheduling"],
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
