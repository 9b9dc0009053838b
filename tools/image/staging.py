"""The folders of files that become the image's layers: what of each package is in them, and what is added."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.image.debian import Package, unpack

ROOT = Path(__file__).parent.parent.parent
PYTHON = "python3.13"
"""The program, and the name of its folders of modules; its package is among the roots in `lock`."""
SITE = f"usr/local/lib/{PYTHON}/dist-packages"
KUBECTL = "usr/local/bin/kubectl"
COMMAND = "usr/local/bin/tarragon"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"
USER = 65532

_NEVER_USED = re.compile(
    r"""
      usr/share/doc/(?![^/]+(/copyright)?$)
    | usr/share/(base-files|bash-completion|binfmts|bug|info|lintian|locale|man|menu|pixmaps|gcc|gdb)/
    | usr/(bin|sbin)/(?!python3)
    | usr/(games|include)/
    | usr/lib/binfmt.d/
    | etc/(python3|update-motd.d|issue|profile.d|skel|ca-certificates|default|logcheck)
    # Converters of iconv(3), debuggers' helpers, and what the C library keeps for programs of the last century.
    | usr/lib/[^/]+/(gconv/|libthread_db|libmemusage|libpcprofile|libc_malloc_debug|libnsl|libBrokenLocale|libnss_)
    # Modules that need libraries that are left out, documentation, and tests.
    | usr/lib/python3\.\d+/lib-dynload/(_curses|_dbm|readline|_(ctypes_)?test|_xxtestfuzz|xx)
    | usr/lib/python3\.\d+/(pydoc_data|curses|sitecustomize|turtledemo|idlelib|test|ensurepip|.*/tests?/|.*\.rst$)
    """,
    re.VERBOSE,
)
_NOT_NEEDED_TO_RUN = re.compile(
    r"""
      (^|/)(tests?|__pycache__)/
    | \.(a|c|h|pxd|pyi|pyx|typed)$
    | ^bin/
    | -stubs/
    | ^numpy/(f2py|_pyinstaller|doc)/
    # Lists for installers, of files that are not all there.
    | \.dist-info/(RECORD|INSTALLER|REQUESTED)$
    | ^\.lock$
    """,
    re.VERBOSE,
)
_FILES: Mapping[str, str] = {
    "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\ntarragon:x:{USER}:{USER}:tarragon:/tmp:/sbin/nologin\n",
    "etc/group": f"root:x:0:\ntarragon:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
_LINKS: Mapping[str, str] = {
    "usr/bin/python3": PYTHON,
}
_FOLDERS = ("dev", "etc", "proc", "run", "sys", "tmp", "var")
"""Where runtimes mount something."""
_PROGRAM = f"""\
#!/usr/bin/{PYTHON} -P
import sys

from tarragon.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
"""


def stage_debian(packages: Sequence[Package], cache: Path, root: Path) -> None:
    """Lay out Debian's packages, and what their scripts would have made."""
    for package in packages:
        unpack(package, cache, root, lambda path: _NEVER_USED.match(path) is None)
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (root / name).write_text(text)
    for name, target in _LINKS.items():
        (root / name).symlink_to(target)
    authorities = sorted((root / "usr/share/ca-certificates").rglob("*.crt"))
    bundle = root / CERTIFICATES
    bundle.parent.mkdir(parents=True, exist_ok=True)
    bundle.write_text("".join(path.read_text() for path in authorities))
    # The bundle has them all.
    shutil.rmtree(root / "usr/share/ca-certificates")


def stage_dependencies(installed: Path, root: Path) -> None:
    """Lay out what uv has installed, without what only installers, compilers, type checkers and tests read."""
    copy_tree(installed, root / SITE, _NOT_NEEDED_TO_RUN)


def stage_kubectl(program: Path, root: Path) -> None:
    target = root / KUBECTL
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(program, target)
    target.chmod(0o755)


def stage_tarragon(root: Path) -> None:
    copy_tree(ROOT / "tarragon", root / SITE / "tarragon", re.compile(r"(^|/)__pycache__/|\.py[co]$"))
    command = root / COMMAND
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(_PROGRAM)
    command.chmod(0o755)
    licence = root / "usr/share/doc/tarragon/copyright"
    licence.parent.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", licence)


def copy_tree(source: Path, target: Path, without: re.Pattern[str]) -> None:
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source).as_posix()
        if path.is_dir() or without.search(name):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / name)
