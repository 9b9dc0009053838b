"""What hatchling builds from the tree besides the code: the page for a package index, and files to read offline.

Manual pages and completions of shells go where man and shells look for them, below the prefix of the environment. The
documentation and the examples go into the wheel, where `tarragon docs` and `tarragon examples` find them. An
editable wheel has none: a checkout has them at its top, and nobody wants to read old copies.
"""

from __future__ import annotations

import re
import runpy
import tempfile
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
        tag = f"{metadata['urls']['Source']}/blob/v{project_version(root)}"
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
        self._folder = tempfile.TemporaryDirectory()
        for name, text in shared_files(root).items():
            made = Path(self._folder.name, name)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text, encoding="utf-8")
            made.chmod(0o644)
            build_data["shared_data"][str(made)] = name

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if version == "standard":
            self._folder.cleanup()


def shared_files(root: Path) -> dict[str, str]:
    """The texts of the files that are installed below the prefix, by their paths."""
    # hatchling loads this file alone: its neighbours can't be imported.
    make = runpy.run_path(str(root / "tools/man_pages.py"))["shared_files"]
    reference = (root / "docs/reference/commands.md").read_text(encoding="utf-8")
    made: dict[str, str] = make(reference, project_version(root))
    return made


def project_version(root: Path) -> str:
    found: str = _VERSION.findall((root / "tarragon/__init__.py").read_text(encoding="utf-8"))[0]
    return found
