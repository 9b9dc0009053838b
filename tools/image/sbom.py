"""The bill of materials of an image, in SPDX 2.3: Debian's packages, those of Python, and the modules in kubectl."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tools.image.debian import Package
from tools.image.kubectl import GoModule
from tools.image.python_packages import PythonPackage

Json = dict[str, Any]
NONE = "NOASSERTION"
MEDIA_TYPE = "application/spdx+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What an image is made of."""

    version: str
    """That of Tarragon."""
    architecture: str
    created: str
    """In RFC 3339."""
    debian_release: str
    debian: Sequence[Package]
    python: Sequence[PythonPackage]
    kubectl_version: str
    kubectl: Sequence[GoModule]
    """Empty for an image without kubectl."""


def render_sbom(contents: Contents) -> bytes:
    packages = [
        _package("tarragon", contents.version, f"pkg:pypi/tarragon@{contents.version}", "Apache-2.0"),
        *(_debian(each, contents) for each in contents.debian),
        *(_package(each.name, each.version, _pypi(each), each.licence) for each in contents.python),
    ]
    if contents.kubectl:
        version = f"v{contents.kubectl_version}"
        packages.append(_package("kubectl", version, f"pkg:golang/k8s.io/kubectl@{version}", "Apache-2.0"))
        packages += [_package(each.name, each.version, _golang(each), "") for each in contents.kubectl]
    digest = hashlib.sha256(json.dumps(packages, sort_keys=True).encode()).hexdigest()
    name = f"tarragon-{contents.version}-linux-{contents.architecture}"
    image = {**_package(name, contents.version, "", "Apache-2.0"), "primaryPackagePurpose": "CONTAINER"}
    document = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://github.com/tarragon-dev/tarragon/sbom/{name}-{digest}",
        "creationInfo": {"created": contents.created, "creators": ["Tool: tarragon-tools-image"]},
        "packages": [image, *packages],
        "relationships": [
            _related("SPDXRef-DOCUMENT", "DESCRIBES", image),
            *(_related(image["SPDXID"], "CONTAINS", each) for each in packages),
        ],
    }
    return (json.dumps(document, indent=1) + "\n").encode()


def _debian(package: Package, contents: Contents) -> Json:
    architecture = f"arch={package.architecture}&distro=debian-{contents.debian_release}"
    purl = f"pkg:deb/debian/{package.name}@{package.version.replace('+', '%2B')}?{architecture}"
    return {
        **_package(package.name, package.version, purl, ""),
        "downloadLocation": package.urls[-1],
        "sourceInfo": f"built from the source package {package.source}",
        "checksums": [{"algorithm": "SHA256", "checksumValue": package.sha256}],
    }


def _package(name: str, version: str, purl: str, licence: str) -> Json:
    identifier = re.sub(r"[^A-Za-z0-9.-]", "-", purl.removeprefix("pkg:").partition("?")[0] or name)
    references = [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}]
    return {
        "SPDXID": f"SPDXRef-{identifier}",
        "name": name,
        "versionInfo": version,
        "downloadLocation": NONE,
        "filesAnalyzed": False,
        "licenseConcluded": NONE,
        "licenseDeclared": licence or NONE,
        "copyrightText": NONE,
        **({"externalRefs": references} if purl else {}),
    }


def _pypi(package: PythonPackage) -> str:
    return f"pkg:pypi/{re.sub(r'[-_.]+', '-', package.name).lower()}@{package.version}"


def _golang(module: GoModule) -> str:
    return f"pkg:golang/{module.name}@{module.version}"


def _related(element: str, kind: str, other: Json) -> Json:
    return {"spdxElementId": element, "relationshipType": kind, "relatedSpdxElement": other["SPDXID"]}
