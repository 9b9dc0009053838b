"""An embedded API server on a free port, as a test needs one: with TLS, a store on disk and a kind of its own."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tarragon.base.clock import Clock, SystemClock
from tarragon.client.http.client import HttpClient
from tarragon.client.http.transport import RestConfig
from tarragon.kube.codec import decode
from tarragon.kube.meta import CustomObject, Resource
from tarragon.localcluster.apiserver.apiserver import ApiServer, ServerConfig
from tarragon.localcluster.apiserver.http.connection import DEFAULT_LIMITS, Limits
from tarragon.localcluster.daemon.certificates import ensure_certificates
from tarragon.localcluster.home.home import Home
from tarragon.localcluster.registry.api import Api
from tarragon.localcluster.storage.store import DEFAULT_WINDOW, HistoryWindow

TOKEN = "a-token-for-tests"

WIDGETS = Resource(group="example.dev", version="v1", plural="widgets", kind="Widget", model=CustomObject)


def widget_definition(*versions: str) -> dict[str, Any]:
    """The CRD of Widget: a schema, columns, and the status and scale subresources. The first version is stored."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.dev"},
        "spec": {
            "group": "example.dev",
            "scope": "Namespaced",
            "names": {
                "kind": "Widget",
                "listKind": "WidgetList",
                "plural": "widgets",
                "singular": "widget",
                "shortNames": ["wg"],
                "categories": ["all"],
            },
            "versions": [_version(name, stored=name == (versions or ("v1",))[0]) for name in versions or ("v1",)],
        },
    }


def _version(name: str, *, stored: bool) -> dict[str, Any]:
    return {
        "name": name,
        "served": True,
        "storage": stored,
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "A Widget is a thing to test with.",
                "properties": {
                    "spec": {
                        "type": "object",
                        "properties": {
                            "replicas": {"type": "integer", "minimum": 0, "description": "How many parts it has."},
                            "color": {"type": "string", "enum": ["red", "green", "blue"]},
                            "parts": {"type": "array", "items": {"type": "string"}},
                        },
                    },
                    "status": {
                        "type": "object",
                        "properties": {
                            "phase": {"type": "string"},
                            "replicas": {"type": "integer"},
                            "conditions": {
                                "type": "array",
                                "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                            },
                        },
                    },
                },
            }
        },
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
        "additionalPrinterColumns": [
            {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
            {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Parts", "type": "integer", "jsonPath": ".spec.replicas", "priority": 1},
        ],
    }


def widget(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.dev/v1",
        "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"color": "red", **spec},
    }


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "busybox"}], **spec},
    }


@dataclass
class Embedded:
    """Everything about the server that a client must know."""

    api: Api
    server: ApiServer
    url: str
    ca: bytes
    clock: Clock

    def at(self, token: str = TOKEN) -> RestConfig:
        return RestConfig(url=self.url, ca_data=self.ca, token=token)

    def client(self, token: str = TOKEN) -> HttpClient:
        return HttpClient(self.at(token), random.Random(1))

    def kubeconfig(self, folder: Path) -> Path:
        """For kubectl."""
        (folder / "ca.crt").write_bytes(self.ca)
        path = folder / "kubeconfig"
        path.write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [
                        {"name": "c", "cluster": {"server": self.url, "certificate-authority": str(folder / "ca.crt")}}
                    ],
                    "users": [{"name": "u", "user": {"token": TOKEN}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "c",
                }
            )
        )
        return path

    async def add_widgets(self, *versions: str) -> None:
        target = self.api.target(("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
        await self.api.create(target, widget_definition(*versions))

    async def stored(self, plural: str, name: str, group: str = "") -> dict[str, Any]:
        namespace = "" if plural in {"nodes", "namespaces", "customresourcedefinitions"} else "default"
        return decode(self.api.get(self.api.target((group, "v1", plural), namespace, name)), dict)


def server_tls(home: Home, clock: Clock) -> ssl.SSLContext:
    """With the certificates of the home, which are issued if there are none."""
    files = ensure_certificates(home, clock.now())
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(files.chain, files.key)
    return tls


@asynccontextmanager
async def embedded(
    folder: Path, clock: Clock | None = None, window: HistoryWindow = DEFAULT_WINDOW, limits: Limits = DEFAULT_LIMITS
) -> AsyncIterator[Embedded]:
    clock = clock or SystemClock()
    home = Home(folder / "home")
    home.prepare()
    tls = server_tls(home, clock)
    api = await Api.open(home.store_path, clock, window)
    server = ApiServer(api, clock, ServerConfig(token=TOKEN, tls=tls, limits=limits))
    await server.start()
    try:
        yield Embedded(api, server, server.url, home.ca.read_bytes(), clock)
    finally:
        await server.stop()
        await api.close()
