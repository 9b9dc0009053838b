"""Records which pods of a home have started, by host name, for the rsh agent, which cannot ask an API server.

    <home>/node/_hosts/<namespace>/<host name>      the folder of the pod, and the names of its containers, one a line

A host name is the name of the pod, its `hostname`, or `hostname.subdomain`. The nodes of a home share the folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tarragon.localcluster.home.home import create_private_folder
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.base.spec import Pod


class HostNames:
    """The host names of the pods of one node."""

    def __init__(self, folder: NodeFolder) -> None:
        self._folder = folder

    def add(self, pod: Pod) -> None:
        """Record the pod, in place of an earlier one with the same name. Raises OSError."""
        place = self._folder.hosts / pod.metadata.namespace
        create_private_folder(place)
        lines = [str(self._folder.pod(pod.metadata.uid).path), *(container.name for container in pod.spec.containers)]
        for name in _names(pod):
            # Written elsewhere first: no name can be that of a file that is being written.
            temporary = self._folder.hosts / f".{pod.metadata.uid}"
            temporary.write_text("\n".join(lines), encoding="utf-8")
            temporary.replace(place / name)

    def remove(self, pod: Pod) -> None:
        """Remove the pod's names, unless another pod has them by now. Raises OSError."""
        for name in _names(pod):
            entry = self._folder.hosts / pod.metadata.namespace / name
            if _pod_folder(entry) == self._folder.pod(pod.metadata.uid).path:
                entry.unlink(missing_ok=True)

    def prune(self) -> None:
        """Remove the names of pods whose folders are gone. Raises OSError."""
        for entry in self._folder.hosts.glob("*/*"):
            folder = _pod_folder(entry)
            if folder is not None and folder.parent == self._folder.pods and not folder.exists():
                entry.unlink(missing_ok=True)


def _names(pod: Pod) -> Iterator[str]:
    yield pod.metadata.name
    host = pod.spec.hostname or pod.metadata.name
    # Pods of several jobs may share a `hostname`; they differ in the subdomain.
    if full := f"{host}.{pod.spec.subdomain}" if pod.spec.subdomain else pod.spec.hostname:
        yield full


def _pod_folder(entry: Path) -> Path | None:
    try:
        return Path(entry.read_text(encoding="utf-8").partition("\n")[0])
    except FileNotFoundError:
        return None
