"""Claims ports of this machine in one registry for all homes and all users.

A claim is a file named after its port, in a sticky folder to which every user may add files: `/var/tmp/tarragon-ports`.
Creating the file is the claim, so the kernel decides who was first. A claim that its home no longer records is stale,
and another home of the same user may take it over. This happens under the user's lock, so that a claim is never checked
between its creation and its recording in the home.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tarragon.base.errors import TarragonError
from tarragon.localcluster.kubelet.base.files import unlock

FIRST_PORT, LAST_PORT = 20000, 29999
UNKNOWN_OWNER = Path(os.devnull)
"""The owner of a claim whose writer was killed."""
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW


def registry_folder() -> Path:
    """The machine's registry, the same for every user and every home."""
    persistent = Path("/var/tmp")  # noqa: S108 - shared on purpose; see how it is used
    return (persistent if persistent.is_dir() else Path(tempfile.gettempdir())) / "tarragon-ports"


class PortClaims:
    """The claims of one home. `owner` is the home's folder; `holds` tells whether a home has allocated a port."""

    def __init__(self, registry: Path, owner: Path, holds: Callable[[Path, int], bool]) -> None:
        self._folder = _shared_folder(registry)
        self._owner = owner
        self._holds = holds

    def close(self) -> None:
        os.close(self._folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold this user's lock, while ports are claimed and recorded in the home."""
        name = f"lock-{os.getuid()}"
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | _OPEN, 0o600, dir_fd=self._folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            unlock(descriptor)

    def claim(self, port: int) -> bool:
        """Claim a port. False when another home has it or a program listens on it."""
        if not self._claim(port):
            return False
        if is_free(port):
            return True
        self.release(port)
        return False

    def renew(self, port: int) -> None:
        """Renew a claim, as some systems remove old files from such folders."""
        if self._claim(port):
            with contextlib.suppress(OSError):
                os.utime(str(port), dir_fd=self._folder, follow_symlinks=False)

    def release(self, port: int) -> None:
        if self._owner_of(port) == self._owner:
            os.unlink(str(port), dir_fd=self._folder)

    def ports(self) -> set[int]:
        """The ports that this home has claimed."""
        claimed = {int(name) for name in os.listdir(self._folder) if name.isdecimal()}  # noqa: PTH208 - a descriptor
        return {port for port in claimed if self._owner_of(port) == self._owner}

    def _claim(self, port: int) -> bool:
        owner = self._owner_of(port)
        if owner == self._owner:
            return True
        if owner and not self._holds(owner, port):
            with contextlib.suppress(OSError):
                os.unlink(str(port), dir_fd=self._folder)
        try:
            descriptor = os.open(str(port), os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=self._folder)
        except FileExistsError:
            return False
        with os.fdopen(descriptor, "wb") as file:
            file.write(os.fsencode(self._owner))
        return True

    def _owner_of(self, port: int) -> Path | None:
        """The folder of the claim's home; None without a claim, and for a claim of another user."""
        try:
            descriptor = os.open(str(port), os.O_RDONLY | _OPEN, dir_fd=self._folder)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            if os.fstat(descriptor).st_uid != os.getuid():
                return None
            data = file.read()
        # A claim is empty if its writer was killed before it wrote.
        return Path(os.fsdecode(data)) if data else UNKNOWN_OWNER


def _shared_folder(registry: Path) -> int:
    """A descriptor of the registry's folder, which cannot be replaced while it is open."""
    for folder, mode in ((registry, 0o1777), (registry.with_name(f"{registry.name}-{os.getuid()}"), 0o700)):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            folder.chmod(mode)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _OPEN)
        except OSError:
            continue
        status = os.fstat(descriptor)
        if status.st_uid == os.getuid() or (status.st_mode & stat.S_ISVTX and status.st_mode & stat.S_IWOTH):
            return descriptor
        os.close(descriptor)
    raise TarragonError(
        f"ports cannot be claimed on this machine: {registry} is not a folder that every user may write to",
        remedy=f"delete {registry}, or ask its owner to delete it",
    )


def candidate_ports() -> list[int]:
    """The ports to claim from: those outside the system's ephemeral range, if any."""
    first, last = _ephemeral()
    outside = [port for port in range(FIRST_PORT, LAST_PORT + 1) if not first <= port <= last]
    return outside or list(range(FIRST_PORT, LAST_PORT + 1))


def _ephemeral() -> tuple[int, int]:
    try:
        first, last = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
        return int(first), int(last)
    except (OSError, ValueError):
        return 49152, 65535  # IANA's, which macOS uses


def is_free(port: int) -> bool:
    """Whether a server could listen on the port on all interfaces, as TensorFlow's does."""
    return all(_can_bind(family, port) for family in (socket.AF_INET, socket.AF_INET6))


def _can_bind(family: socket.AddressFamily, port: int) -> bool:
    try:
        probe = socket.socket(family, socket.SOCK_STREAM)
    except OSError:
        return True  # a machine without IPv6
    with probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # ignore connections in TIME_WAIT
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            return error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}  # IPv6 is switched off
    return True
