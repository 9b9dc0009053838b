"""A disposable, real Kubernetes control plane: etcd, kube-apiserver, controller-manager and scheduler, of any version
from 1.20 to 1.37.

The programs of the main one come from KUBEBUILDER_ASSETS (a folder such as setup-envtest creates), from `make
controlplane`, or from ../shared/kubernetes-1.37; those of the oldest one that Tarragon promises to run on, from
KUBEBUILDER_ASSETS_OLDEST or ../shared/kubernetes.

    python -m tools.controlplane FOLDER [--oldest] [--plain] [-- FLAG-OF-THE-API-SERVER...]

runs one until Ctrl-C and prints the path of its kubeconfig. It is for tests, benchmarks and experiments only: every
user of the machine can connect to its etcd, and a power failure may lose data.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import datetime as dt
import fcntl
import functools
import http.client
import ipaddress
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"
TOOLS = ROOT / ".tools"

ETCD, API_SERVER, CONTROLLERS, SCHEDULER = "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"
_ORDER = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER)
_START_TIMEOUT = 90.0
_PORTS = range(12_000, 20_000)
"""Ports that neither the system nor the process kubelet assigns, so that a restarted server finds its port free."""
_NO_SERVER_PORT_SINCE = 24
_NO_LOOPBACK_SINCE = 21
"""1.20 accepts 127.0.0.1 as the endpoint of its Service, 1.37 does not start with it; no version between was tried."""
_NO_SECRET_OF_TOKENS_SINCE = 24
_SERVICES = "10.96.0.0/16"
_SERVICE_ADDRESS = "10.96.0.1"
_DIE_WITH_PARENT = 1
_OWN_USERS = ["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "system:anonymous"]
# Requests of the control plane itself are most of the traffic, and no test needs them.
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": _OWN_USERS},
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata"},
    ],
}
_IDENTITIES: Mapping[str, tuple[str, Sequence[str]]] = MappingProxyType(
    {
        "admin": ("admin", ["system:masters"]),
        CONTROLLERS: ("system:kube-controller-manager", []),
        SCHEDULER: ("system:kube-scheduler", []),
    }
)


class ControlPlaneUnavailableError(Exception):
    """The programs are missing, or one of them did not start; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A version of Kubernetes that tests run on, and where its programs may be."""

    name: str
    variable: str
    """The environment variable that names a folder with the programs, of whatever version."""
    built: Path | None
    """Where `make controlplane` puts them."""
    packed: Path
    """A folder with an `unpack.sh FOLDER`."""

    @property
    def advice(self) -> str:
        how = (
            f"set {self.variable} to a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler "
            "(the server archive of a Kubernetes release has all but etcd; setup-envtest installs only the first two)"
        )
        return f"{how}, or build them with `make controlplane` (needs go)" if self.built else how

    def missing_reason(self) -> str | None:
        """The reason why it can't be started on this machine, or None."""
        given = os.environ.get(self.variable)
        if given:
            missing = [name for name in _ORDER if not Path(given, name).exists()]
            return f"{given} has no {', '.join(missing)}; {self.advice}" if missing else None
        is_here = self.packed.is_dir() or (self.built and self.built.is_dir())
        return None if is_here else f"no control plane of Kubernetes {self.name}; {self.advice}"

    def binaries(self) -> Path:
        """The folder with the programs, which the first call unpacks. Raises ControlPlaneUnavailableError."""
        if given := os.environ.get(self.variable):
            return Path(given)
        if self.built and self.built.is_dir():
            return self.built
        if not self.packed.is_dir():
            raise ControlPlaneUnavailableError(self.advice)
        return _unpacked(self.packed)

    def minor(self) -> int:
        """The minor version of the programs: 20 for Kubernetes 1.20.2. Raises ControlPlaneUnavailableError."""
        return _minor(self.binaries())


NEWEST = Release(
    name="1.37",
    variable="KUBEBUILDER_ASSETS",
    built=TOOLS / "kubernetes-1.37",
    packed=SHARED / "kubernetes-1.37",
)
OLDEST = Release(name="1.20", variable="KUBEBUILDER_ASSETS_OLDEST", built=None, packed=SHARED / "kubernetes")
"""The oldest that Tarragon promises to run on."""


@functools.cache
def _unpacked(packed: Path) -> Path:
    unpacked = TOOLS / f"unpacked-{packed.name}"
    unpacked.mkdir(parents=True, exist_ok=True)
    with (unpacked / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run([packed / "unpack.sh", unpacked], check=True, stdout=subprocess.DEVNULL, timeout=300)
    return unpacked


@dataclass(frozen=True, slots=True)
class _Pair:
    """A certificate and its key, in PEM."""

    certificate: bytes
    key: bytes


class ControlPlane:
    """A control plane, from `start` to `stop`. The kernel kills its servers when the thread that started them ends."""

    def __init__(
        self,
        folder: Path,
        release: Release,
        *,
        full: bool,
        arguments: Sequence[str],
        feature_gates: Sequence[str],
    ) -> None:
        self.folder = folder
        self.release = release
        self.kubeconfig = folder / "admin.kubeconfig"
        self._binaries = release.binaries()
        self._full = full
        self._arguments = arguments
        self._gates = [f"--feature-gates={','.join(f'{name}=true' for name in feature_gates)}"] if feature_gates else []
        self._held = _held_ports(3)
        ports = iter([one.getsockname()[1] for one in self._held])
        self._etcd = f"http://127.0.0.1:{next(ports)}"
        self._etcd_peer = f"http://127.0.0.1:{next(ports)}"
        self._port = next(ports)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._audited = 0
        self._authority = _authority()

    @classmethod
    def start(
        cls,
        folder: Path,
        release: Release = NEWEST,
        *,
        full: bool = True,
        arguments: Sequence[str] = (),
        feature_gates: Sequence[str] = (),
    ) -> ControlPlane:
        """Start the servers, which answer on return. With `full`, controller-manager and scheduler run too.

        `arguments` are additional flags of the API server; `feature_gates` are turned on in all servers. Raises
        ControlPlaneUnavailableError.
        """
        folder.mkdir(parents=True, exist_ok=True)
        control_plane = cls(folder, release, full=full, arguments=arguments, feature_gates=feature_gates)
        try:
            control_plane._prepare()
            for name in _ORDER:
                control_plane.restart(name)
        except BaseException:
            control_plane.stop()
            raise
        return control_plane

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._port}"

    @property
    def minor(self) -> int:
        """The minor version: 20 for Kubernetes 1.20.2."""
        return _minor(self._binaries)

    @property
    def etcd_url(self) -> str:
        return self._etcd

    def pid(self, name: str) -> int:
        """The process of a running server, such as `kube-apiserver`."""
        return self._running[name].pid

    def stop(self) -> None:
        for name in reversed(_ORDER):
            self._stop_server(name, signal.SIGTERM)
        for port in self._held:
            port.close()

    def kill(self, name: str) -> None:
        """Kill a server, such as `kube-apiserver`, with SIGKILL."""
        self._stop_server(name, signal.SIGKILL)

    def restart(self, name: str) -> None:
        """Start a server that was killed, on the same port; it answers on return."""
        if name in {CONTROLLERS, SCHEDULER} and not self._full:
            return
        program = self._binaries / name
        if not program.exists():
            raise ControlPlaneUnavailableError(f"{program} does not exist; {self.release.advice}")
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [program, *self._flags(name)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - one system call, no lock
            )
        if name == ETCD:
            self._wait_until(name, lambda: b"true" in _fetch(f"{self._etcd}/health"))
        elif name == API_SERVER:
            self._wait_until(name, lambda: self.get("/readyz") == b"ok")
            self._wait_until(name, lambda: bool(self.get("/api/v1/namespaces/default")))
        elif name == CONTROLLERS:
            self._wait_until(name, lambda: self.has_service_account("default"))

    def has_service_account(self, namespace: str) -> bool:
        """Whether the default service account of a namespace exists, with its token Secret in old versions."""
        account = self.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
        return b'"secrets"' in account if self.minor < _NO_SECRET_OF_TOKENS_SINCE else bool(account)

    def user(self, name: str, groups: Sequence[str] = ()) -> Path:
        """The kubeconfig of a new user, who has only the permissions of its role bindings."""
        path = self.folder / f"{name.replace(':', '-').replace('/', '-')}.kubeconfig"
        self._write_kubeconfig(path, name, groups)
        return path

    def audit_events(self) -> list[Json]:
        """Every request so far except those of the control plane itself, as audit events of level Metadata, in order.

        The user name of an unauthenticated request is empty. `forget_audit` begins anew.
        """
        path = self.folder / "audit.log"
        if not path.exists():
            return []
        with path.open("rb") as log:
            log.seek(self._audited)
            text, end, _ = log.read().decode().rpartition("\n")
        events: list[Json] = [json.loads(line) for line in (text + end).splitlines()]
        for event in events:
            event["user"].setdefault("username", "")
        return events

    def forget_audit(self) -> None:
        self._audited = (self.folder / "audit.log").stat().st_size

    def compact(self) -> None:
        """Compact etcd's whole history, which kube-apiserver otherwise does every five minutes."""
        revision = self._ask_etcd("kv/range", {"key": base64.b64encode(b"none").decode()})["header"]["revision"]
        self._ask_etcd("kv/compaction", {"revision": revision, "physical": True})

    def get(self, path: str) -> bytes:
        """The API server's answer to an administrator; empty if it can't be reached or returns an error."""
        trust = ssl.create_default_context(cafile=self._file("ca.crt"))
        trust.load_cert_chain(self._file("admin.crt"), self._file("admin.key"))
        return _fetch(self.url + path, trust=trust)

    def _prepare(self) -> None:
        server = _issue(self._authority, API_SERVER, (), is_server=True)
        admin = _issue(self._authority, *_IDENTITIES["admin"])
        for name, pair in {"ca": self._authority, "server": server, "admin": admin}.items():
            _write(self._file(f"{name}.crt"), pair.certificate)
            _write(self._file(f"{name}.key"), pair.key)
        _write(self._file("accounts.key"), _pem(ec.generate_private_key(ec.SECP256R1())))
        _write(self._file("policy.yaml"), yaml.safe_dump(_POLICY).encode())
        for name, (user, groups) in _IDENTITIES.items():
            self._write_kubeconfig(self.folder / f"{name}.kubeconfig", user, groups)

    def _write_kubeconfig(self, path: Path, user: str, groups: Sequence[str]) -> None:
        pair = _issue(self._authority, user, groups)
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority-data": _text(self._authority.certificate)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _text(pair.certificate),
                        "client-key-data": _text(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
            "current-context": "test",
        }
        _write(str(path), yaml.safe_dump(config, sort_keys=False).encode())

    def _flags(self, name: str) -> list[str]:
        flags: Mapping[str, Sequence[str]] = {
            ETCD: self._etcd_flags(),
            API_SERVER: self._api_server_flags(),
            CONTROLLERS: self._controller_flags(),
            SCHEDULER: self._common_flags(SCHEDULER),
        }
        return list(flags[name])

    def _etcd_flags(self) -> Sequence[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            "--name=t",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={self._etcd}",
            f"--advertise-client-urls={self._etcd}",
            f"--listen-peer-urls={self._etcd_peer}",
            f"--initial-advertise-peer-urls={self._etcd_peer}",
            f"--initial-cluster=t={self._etcd_peer}",
        ]

    def _api_server_flags(self) -> Sequence[str]:
        # Without controller-manager nothing creates service accounts, and pods could not be created without theirs.
        disabled_plugins = [] if self._full else ["--disable-admission-plugins=ServiceAccount"]
        return [
            f"--etcd-servers={self._etcd}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={self._file('server.crt')}",
            f"--tls-private-key-file={self._file('server.key')}",
            f"--client-ca-file={self._file('ca.crt')}",
            "--authorization-mode=Node,RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._file('accounts.key')}",
            f"--service-account-signing-key-file={self._file('accounts.key')}",
            f"--service-cluster-ip-range={_SERVICES}",
            f"--kubelet-client-certificate={self._file('admin.crt')}",
            f"--kubelet-client-key={self._file('admin.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            f"--audit-policy-file={self._file('policy.yaml')}",
            f"--audit-log-path={self.folder / 'audit.log'}",
            *([] if self.minor < _NO_LOOPBACK_SINCE else ["--endpoint-reconciler-type=none"]),
            *disabled_plugins,
            *self._gates,
            *self._arguments,
        ]

    def _controller_flags(self) -> Sequence[str]:
        return [
            *self._common_flags(CONTROLLERS),
            "--use-service-account-credentials=true",
            f"--service-account-private-key-file={self._file('accounts.key')}",
            f"--root-ca-file={self._file('ca.crt')}",
            f"--cluster-signing-cert-file={self._file('ca.crt')}",
            f"--cluster-signing-key-file={self._file('ca.key')}",
        ]

    def _common_flags(self, name: str) -> Sequence[str]:
        insecure = ["--port=0"] if self.minor < _NO_SERVER_PORT_SINCE else []
        return [
            f"--kubeconfig={self.folder / name}.kubeconfig",
            "--leader-elect=false",
            "--secure-port=0",
            # With the default of 20 requests a second, deleting the namespaces of many tests would take too long.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            *insecure,
            *self._gates,
        ]

    def _file(self, name: str) -> str:
        return str(self.folder / name)

    def _wait_until(self, name: str, answers: Callable[[], bool]) -> None:
        end = time.monotonic() + _START_TIMEOUT
        while not answers():
            if self._running[name].poll() is not None or time.monotonic() > end:
                log = (self.folder / f"{name}.log").read_text(errors="replace").splitlines()
                raise ControlPlaneUnavailableError(
                    f"{name} did not start; its last log lines:\n" + "\n".join(log[-20:])
                )
            time.sleep(0.05)

    def _stop_server(self, name: str, number: signal.Signals) -> None:
        process = self._running.pop(name, None)
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _ask_etcd(self, path: str, body: Json) -> Json:
        answer: Json = json.loads(_fetch(f"{self._etcd}/v3/{path}", json.dumps(body).encode()))
        return answer


def _fetch(url: str, body: bytes | None = None, *, trust: ssl.SSLContext | None = None) -> bytes:
    """The body of the response; empty if there is none or it is an error."""
    # No proxy, because the address is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust))
    try:
        with opener.open(urllib.request.Request(url, data=body), timeout=10) as response:  # noqa: S310 - http(s), ours
            read: bytes = response.read()
            return read
    except (OSError, http.client.HTTPException):
        return b""


@functools.cache
def _minor(folder: Path) -> int:
    output = subprocess.run([folder / API_SERVER, "--version"], capture_output=True, text=True, check=True, timeout=60)
    version = re.search(r"v1\.(\d+)", output.stdout)
    if version is None:
        raise ControlPlaneUnavailableError(f"{folder / API_SERVER} does not print its version: {output.stdout!r}")
    return int(version[1])


def _held_ports(count: int) -> list[socket.socket]:
    """Bind free ports, so that no other program gets them while their server is down.

    Servers in Go can still bind them, because they set SO_REUSEADDR.
    """
    held: list[socket.socket] = []
    rng = random.Random()
    while len(held) < count:
        one = socket.socket()
        try:
            one.bind(("127.0.0.1", rng.choice(_PORTS)))
        except OSError:  # taken
            one.close()
            continue
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.append(one)
    return held


def _die_with_parent() -> None:
    """Make the kernel kill this process with its parent. Linux only: elsewhere killed tests leave servers running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _authority() -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test-ca")])
    certificate = (
        _unsigned(name, name, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _issue(authority: _Pair, name: str, groups: Sequence[str], *, is_server: bool = False) -> _Pair:
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # noqa: S101 - we have made it
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    issuer = x509.load_pem_x509_certificate(authority.certificate).subject
    usage = ExtendedKeyUsageOID.SERVER_AUTH if is_server else ExtendedKeyUsageOID.CLIENT_AUTH
    names: list[x509.GeneralName] = [
        *(x509.IPAddress(ipaddress.ip_address(address)) for address in ("127.0.0.1", _SERVICE_ADDRESS)),
        *(x509.DNSName(host) for host in ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")),
    ]
    request = _unsigned(subject, issuer, key).add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
    if is_server:
        request = request.add_extension(x509.SubjectAlternativeName(names), critical=False)
    certificate = request.sign(signer, hashes.SHA256())
    return _Pair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def _unsigned(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=30))
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # kube-controller-manager 1.20 reads elliptic-curve keys only in the traditional format.
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _write(path: str, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def main() -> None:
    words = sys.argv[1:]
    given, flags = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="for state, certificates and logs")
    parser.add_argument("--oldest", action="store_true", help=f"Kubernetes {OLDEST.name}, not {NEWEST.name}")
    parser.add_argument("--plain", action="store_true", help="without controller-manager and scheduler")
    options = parser.parse_args(given)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        release = OLDEST if options.oldest else NEWEST
        plane = ControlPlane.start(options.folder.absolute(), release, full=not options.plain, arguments=flags)
    except ControlPlaneUnavailableError as error:
        sys.exit(f"controlplane: {error}")
    print(f"ready  {plane.url}  export KUBECONFIG={plane.kubeconfig}", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        plane.stop()


if __name__ == "__main__":
    main()
