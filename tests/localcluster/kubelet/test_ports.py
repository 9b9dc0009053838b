from __future__ import annotations

import asyncio
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarragon.base.clock import FakeClock
from tarragon.base.errors import TarragonError
from tarragon.localcluster.kubelet.network import port_claims, ports
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
from tarragon.localcluster.kubelet.network.ports import PortAllocator, allocated_ports
from tests.localcluster.kubelet.nobody import as_nobody, open_folder

pytestmark = pytest.mark.filterwarnings("error::ResourceWarning")


def address(name: str = "ps-0", port: int = 2222) -> ServiceAddress:
    return ServiceAddress(namespace="default", name=name, port=port)


class Machine:
    """A machine with several homes and one registry."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.registry = folder / "registry"
        self.clock = FakeClock()
        self._open: list[PortAllocator] = []

    def home(self, name: str = "a") -> PortAllocator:
        book = PortAllocator(self.folder / name, self.registry, self.clock)
        self._open.append(book)
        return book

    def claimed(self) -> set[int]:
        return {int(path.name) for path in self.registry.iterdir() if path.name.isdigit()}

    def close(self) -> None:
        for book in self._open:
            book.close()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.close()


def nothing_is_a_service(namespace: str, name: str) -> bool:
    return False


def everything_is_a_service(namespace: str, name: str) -> bool:
    return True


def test_all_pods_get_the_same_local_port_for_an_address(machine: Machine) -> None:
    book = machine.home()

    first = book.allocate([address("ps-0"), address("worker-0")], "node/1")
    second = book.allocate([address("worker-0"), address("ps-0")], "node/2")

    assert first == second
    assert len(set(first.values())) == 2


def test_ports_are_outside_the_ephemeral_range(machine: Machine) -> None:
    (port,) = machine.home().allocate([address()], "node/1").values()

    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert 20000 <= port <= 29999
    assert not low <= port <= high


def test_port_allocations_survive_the_kubelet(machine: Machine) -> None:
    before = machine.home().allocate([address()], "node/1")

    after = machine.home().allocate([address()], "node/1")

    assert after == before == allocated_ports(machine.folder / "a")


def test_two_homes_with_the_same_jobs_get_different_ports(machine: Machine) -> None:
    names = [address(f"worker-{index}") for index in range(50)]

    one = machine.home("a").allocate(names, "node/1")
    other = machine.home("b").allocate(names, "node/1")

    assert not set(one.values()) & set(other.values())


async def test_homes_in_different_processes_never_claim_the_same_port(machine: Machine) -> None:
    """The processes make so many claims in a small range that they collide often."""
    program = """
import sys
from pathlib import Path
from tarragon.base.clock import SystemClock
from tarragon.localcluster.kubelet.network import port_claims
from tarragon.localcluster.kubelet.network.ports import PortAllocator
from tarragon.localcluster.kubelet.network.address_translation import ServiceAddress
port_claims.LAST_PORT = 20149
book = PortAllocator(Path(sys.argv[1]), Path(sys.argv[2]), SystemClock())
for index in range(30):
    book.allocate([ServiceAddress(namespace="n", name=f"w-{index}", port=2222)], "node/1")
"""
    homes = [machine.folder / name for name in "abcd"]
    racers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", program, str(home), str(machine.registry))
        for home in homes
    ]

    assert [await racer.wait() for racer in racers] == [0] * 4

    taken = [port for home in homes for port in allocated_ports(home).values()]
    assert len(taken) == len(set(taken)) == 120


def test_a_port_on_which_another_program_listens_is_not_allocated(machine: Machine) -> None:
    (port,) = machine.home("a").allocate([address()], "node/1").values()
    shutil.rmtree(machine.folder / "a")
    shutil.rmtree(machine.registry)

    with socket.create_server(("127.0.0.1", port)):
        (other,) = machine.home("a").allocate([address()], "node/1").values()

    assert other != port


def test_an_idle_port_taken_by_another_program_is_replaced(machine: Machine) -> None:
    book = machine.home()
    (port,) = book.allocate([address()], "node/1").values()
    book.release("node/1")

    with socket.create_server(("", port)):
        (other,) = book.allocate([address()], "node/2").values()

    assert other != port
    assert machine.claimed() == {other}


def test_a_port_in_use_by_a_live_pod_stays_even_if_another_program_listens(machine: Machine) -> None:
    book = machine.home()
    (port,) = book.allocate([address()], "node/1").values()

    with socket.create_server(("", port)):  # most likely the pod's own server
        (again,) = book.allocate([address()], "node/2").values()

    assert again == port


def test_a_port_stays_while_a_pod_or_its_service_exists(machine: Machine) -> None:
    book = machine.home()
    book.allocate([address("ps-0")], "node/1")
    book.allocate([address("ps-1")], "node/2")
    book.release("node/2")

    book.free_idle(lambda _, name: name == "ps-1")

    assert set(book.allocations()) == {address("ps-0"), address("ps-1")}


def test_a_port_is_freed_without_pods_and_service(machine: Machine) -> None:
    book = machine.home()
    book.allocate([address()], "node/1")
    book.allocate([address()], "node/2")
    book.release("node/1")
    book.free_idle(nothing_is_a_service)
    assert machine.claimed()

    book.release("node/2")
    book.free_idle(nothing_is_a_service)

    assert (book.allocations(), machine.claimed()) == ({}, set())


def test_the_port_of_a_pod_host_name_stays_while_its_service_exists(machine: Machine) -> None:
    book = machine.home()
    book.allocate([address("host-0.ring")], "node/1")
    book.release("node/1")

    book.free_idle(lambda _, name: name == "ring")

    assert book.allocations()


def test_many_jobs_do_not_exhaust_the_ports_even_if_their_services_stay(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The range, the limit and the number of jobs are a hundredth of the real ones."""
    narrow(monkeypatch, 100)
    monkeypatch.setattr(ports, "IDLE_LIMIT", 10)
    book = machine.home()

    for job in range(100):
        machine.clock.advance(60)
        book.allocate([address(f"job-{job}-worker-{index}") for index in range(4)], f"node/{job}")
        book.release(f"node/{job}")
        book.free_idle(everything_is_a_service)

    assert len(machine.claimed()) == 10
    assert set(book.allocations()) > {address(f"job-99-worker-{index}") for index in range(4)}


def narrow(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Limit the range to this many free ports; other tests have servers in the full range."""
    stretches = range(port_claims.FIRST_PORT, port_claims.LAST_PORT - count)
    first = next(first for first in stretches if all(map(port_claims.is_free, range(first, first + count))))
    monkeypatch.setattr(port_claims, "FIRST_PORT", first)
    monkeypatch.setattr(port_claims, "LAST_PORT", first + count - 1)


def test_idle_ports_are_freed_when_the_range_is_full(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 4)
    book = machine.home()
    old = book.allocate([address(f"old-{index}") for index in range(4)], "node/1")
    book.release("node/1")

    new = book.allocate([address(f"new-{index}") for index in range(4)], "node/2")

    assert set(new.values()) == set(old.values())


def test_an_exhausted_port_range_is_an_error(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 2)
    book = machine.home()
    book.allocate([address("a"), address("b")], "node/1")

    with pytest.raises(TarragonError, match="no port is left for c") as refusal:
        book.allocate([address("c")], "node/2")

    assert "c.default.svc:2222" in str(refusal.value)
    assert (
        f"all ports from {port_claims.FIRST_PORT} to {port_claims.LAST_PORT} are in use or claimed on this machine"
        in str(refusal.value)
    )
    assert set(book.allocations()) == {address("a"), address("b")}


def test_the_claims_of_a_removed_home_are_taken_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 1)
    machine.home("a").allocate([address()], "node/1")
    shutil.rmtree(machine.folder / "a")

    assert list(machine.home("b").allocate([address()], "node/1").values()) == [port_claims.FIRST_PORT]


def test_an_empty_claim_of_a_killed_process_is_taken_over(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 1)
    book = machine.home("b")
    (machine.registry / str(port_claims.FIRST_PORT)).touch()

    assert list(book.allocate([address()], "node/1").values()) == [port_claims.FIRST_PORT]


def test_claims_removed_by_a_system_cleanup_are_renewed(machine: Machine) -> None:
    book = machine.home()
    (port,) = book.allocate([address()], "node/1").values()
    (machine.registry / str(port)).unlink()

    book.renew_claims()

    assert machine.claimed() == {port}


def test_a_port_that_a_full_disk_keeps_from_being_freed_stays_claimed(machine: Machine) -> None:
    book = machine.home()
    (port,) = book.allocate([address()], "node/1").values()
    book.release("node/1")
    full_disk = machine.folder / "a" / "ports.json.new"
    full_disk.mkdir()

    with pytest.raises(OSError, match=r"ports\.json"):
        book.free_idle(nothing_is_a_service)

    assert (set(book.allocations().values()), machine.claimed()) == ({port}, {port})
    full_disk.rmdir()
    book.free_idle(nothing_is_a_service)
    assert (book.allocations(), machine.claimed()) == ({}, set())


def test_claims_that_a_killed_kubelet_did_not_release_are_released_later(machine: Machine) -> None:
    book = machine.home("a")
    book.allocate([address("ps-0")], "node/1")
    (machine.folder / "a" / "ports.json").write_text("[]")  # the kubelet was killed right after this
    (kept,) = book.allocate([address("ps-1")], "node/1").values()
    (other,) = machine.home("b").allocate([address("ps-2")], "node/1").values()

    book.renew_claims()

    assert machine.claimed() == {kept, other}


def test_a_registry_that_is_a_symbolic_link_is_not_followed(machine: Machine) -> None:
    (machine.folder / "elsewhere").mkdir()
    machine.registry.symlink_to(machine.folder / "elsewhere")

    machine.home().allocate([address()], "node/1")

    assert list((machine.folder / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_users_share_one_registry_without_taking_ports_from_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow(monkeypatch, 20)
    names = [address(f"worker-{index}") for index in range(10)]
    with open_folder() as folder:
        mine = PortAllocator(folder / "mine", folder / "registry", FakeClock())
        taken = set(mine.allocate(names, "node/1").values())
        mine.close()

        as_nobody(lambda: PortAllocator(folder / "theirs", folder / "registry", FakeClock()).allocate(names, "node/1"))

        assert taken | set(allocated_ports(folder / "theirs").values()) == set(
            range(port_claims.FIRST_PORT, port_claims.LAST_PORT + 1)
        )
