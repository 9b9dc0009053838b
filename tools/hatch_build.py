"""What hatchling builds from the tree besides the code: the page for a package index, and files to read offline.

The documentation and the examples go into the wheel, where `tarragon docs` and `tarragon examples` find them. An
editable wheel has none: a checkout has them at its top, and nobody wants to read old copies.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

INSIDE = "tarragon/cli/bundled"
_VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_PICTURE = re.compile(r"^!\[[^]]*\]\([^)]*\)\n\n", re.MULTILINE)
_RELATIVE_LINK = re.compile(r"\]\((?!\w+:|#)([^)]+)\)")


class IndexPage(MetadataHookInterface):  # type: ignore[misc]  # hatchling is not installed for development
    """The README as the page of the project: its links lead to the tag of this version. An index shows no SVG."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        version = _VERSION.findall((root / "tarragon/__init__.py").read_text(encoding="utf-8"))[0]
        tag = f"{metadata['urls']['Source']}/blob/v{version}"
        text = _PICTURE.sub("", (root / "README.md").read_text(encoding="utf-8"))
        text = _RELATIVE_LINK.sub(rf"]({tag}/\1)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class BundledFiles(BuildHookInterface):  # type: ignore[misc]  # as above
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version != "standard":
            return
        root = Path(self.root)
        pages = [page for page in root.glob("docs/**/*.md") if page.parent.name != "adr"]
        examples = [path for path in root.glob("examples/**/*") if path.is_file() and path.suffix != ".pyc"]
        if not pages or not examples:
            raise FileNotFoundError(f"{root} lacks docs/ or examples/, which are parts of the wheel")
        for path in sorted([*pages, *examples]):
            build_data["force_include"][str(path)] = f"{INSIDE}/{path.relative_to(root).as_posix()}"
