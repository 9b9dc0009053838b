"""Debian's packages of the image: the lock file that names them, and how they are unpacked.

No program of a package runs, its scripts neither: the little that these would do is in `staging`.
"""

from __future__ import annotations

import io
import json
import lzma
import posixpath
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.image.download import fetch
from tools.image.errors import ImageError

LOCK = Path(__file__).parent / "debian-lock.json"
ARCHIVES: Mapping[str, str] = {
    "debian": "http://deb.debian.org/debian",
    "debian-security": "http://deb.debian.org/debian-security",
}
"""Plain HTTP, as in Debian's own lists: what counts is the hash, and a proxy may cache the files."""
SNAPSHOT = "https://snapshot.debian.org/file"
"""Every file that Debian has ever published, by its SHA-1: the archives keep none that a newer one replaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    name: str
    version: str
    architecture: str
    """`all`, or that of the machines it is for."""
    source: str
    """The source package: Debian's security notices name these."""
    archive: str
    """A key of ARCHIVES."""
    path: str
    """Below the archive."""
    sha256: str
    sha1: str
    """It only finds the file, and proves nothing."""

    @property
    def urls(self) -> Sequence[str]:
        return (f"{ARCHIVES[self.archive]}/{self.path}", f"{SNAPSHOT}/{self.sha1}")


@dataclass(frozen=True, slots=True)
class Lock:
    """The packages of the image, by architecture."""

    release: str
    """Debian's name for it, such as `trixie`."""
    packages: Mapping[str, Sequence[Package]]


def read_lock(path: Path = LOCK) -> Lock:
    document = json.loads(path.read_text())
    packages = {name: [Package(**each) for each in given] for name, given in document["packages"].items()}
    return Lock(document["release"], packages)


def render_lock(lock: Lock) -> str:
    """Return the text of the lock file: a line for each package, so that a difference can be read."""
    lines = {
        name: ",\n".join(f"      {json.dumps(asdict(package))}" for package in packages)
        for name, packages in lock.packages.items()
    }
    listed = ",\n".join(f'    "{name}": [\n{text}\n    ]' for name, text in lines.items())
    return f'{{\n  "release": "{lock.release}",\n  "packages": {{\n{listed}\n  }}\n}}\n'


def unpack(package: Package, cache: Path, root: Path, keeps: Callable[[str], bool]) -> None:
    """Lay the package's files out below `root`, but only those whose path, such as `usr/bin/python3.13`, is to be kept.

    Scanners find the package in `var/lib/dpkg/status.d`, as in Google's distroless images.
    """
    members = dict(_members(fetch(package.urls, package.sha256, cache).read_bytes()))
    with _tar(members, "data.tar") as data:
        _extract(package.name, data, root, keeps)
    with _tar(members, "control.tar") as control:
        status = root / "var/lib/dpkg/status.d"
        status.mkdir(parents=True, exist_ok=True)
        for name, target in (("control", package.name), ("md5sums", f"{package.name}.md5sums")):
            found = next((each for each in control if posixpath.normpath(each.name) == name), None)
            content = None if found is None else control.extractfile(found)
            if content is not None:
                (status / target).write_bytes(content.read())


def _members(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The files in an archive of ar(1), whose headers have 60 bytes."""
    at = len(b"!<arch>\n")
    while at + 60 <= len(content):
        header = content[at : at + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), content[at + 60 : at + 60 + size]
        at += 60 + size + size % 2


def _tar(members: Mapping[str, bytes], name: str) -> tarfile.TarFile:
    packed = members.get(f"{name}.xz")
    if packed is None:
        raise ImageError(f"a package has no {name}.xz but {', '.join(members)}: tools/image/debian.py must learn that")
    return tarfile.open(fileobj=io.BytesIO(lzma.decompress(packed)))


def _extract(package: str, archive: tarfile.TarFile, root: Path, keeps: Callable[[str], bool]) -> None:
    for member in archive:
        name = posixpath.normpath(member.name)
        target = root / name
        if name == "." or name.startswith(("..", "/")) or not keeps(name):
            continue
        # A link that is there leads on this machine to where it would not in a container.
        place = target.parent if member.issym() else target
        if not place.resolve().is_relative_to(root.resolve()):
            raise ImageError(f"the package {package} has {name}, which would be written outside of the image")
        if member.isdir():
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.issym():
            target.symlink_to(member.linkname)
        elif content := archive.extractfile(member):  # of a hard link, too
            target.write_bytes(content.read())
            target.chmod(0o755 if member.mode & 0o111 else 0o644)
