"""The rsh agent between real containers. Agents run in a pod, as under mpirun."""

from __future__ import annotations

import _socket
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tarragon.kube.core import NAMESPACES
from tarragon.localcluster.kubelet.base import processes
from tarragon.localcluster.kubelet.base.layout import NodeFolder
from tarragon.localcluster.kubelet.rsh.agent import Arguments, Connection, entry_names, shell_words
from tarragon.localcluster.kubelet.rsh.programs import NodePrograms, mpi_variables, without_sshd
from tarragon.localcluster.kubelet.shim.shim_client import state_of
from tests.localcluster.kubelet.builders import container_json
from tests.localcluster.kubelet.waiting import eventually
from tests.localcluster.kubelet.world import World, state, terminated

FOREVER = "sleep 600 & wait"
WAIT = "-o ConnectionAttempts=60"
"""Wait for the pod instead of failing, as its containers may start later than that of the agent."""


async def output(world: World, script: str, **spec: object) -> str:
    """The output of a shell script in a pod `launcher`."""
    await world.run(script.replace("$$", "$$$$"), "launcher", restartPolicy="Never", **spec)
    await world.until(lambda pod: "terminated" in state(pod), "launcher")
    return await world.log("launcher")


async def worker(world: World, name: str = "pi-worker-0", script: str = FOREVER, **spec: object) -> None:
    await world.run(script, name, **spec)


async def test_a_command_runs_in_the_other_pod_and_returns_its_exit_code(world: World, tmp_path: Path) -> None:
    world.start_kubelet()
    await worker(world, container={"env": [{"name": "COLOR", "value": "green"}], "workingDir": str(tmp_path)})

    printed = await output(world, f"ssh {WAIT} pi-worker-0 'echo $HOSTNAME $COLOR; pwd; exit 7'; echo $?")

    assert printed == f"pi-worker-0 green\n{tmp_path}\n7\n"


async def test_words_are_joined_and_read_by_a_shell_as_by_ssh(world: World) -> None:
    world.start_kubelet()
    await worker(world)
    script = f"""
    ssh -x -l mpiuser {WAIT} mpiuser@pi-worker-0 echo a   b '"c  d"' '$HOSTNAME' \\; echo 'e\\\\ü'
    ssh -T -p 2222 pi-worker-0 -q -- printf %s-%s x "'y z'"
    """

    assert await output(world, script) == "a b c  d pi-worker-0\ne\\ü\nx-y z"


async def test_the_agent_passes_its_streams_on(world: World) -> None:
    world.start_kubelet()
    await worker(world)
    script = f"""
    echo in | ssh {WAIT} pi-worker-0 'cat; echo out; echo err >&2' 2>/dev/null
    echo in | ssh -n pi-worker-0 cat
    echo 'echo $HOSTNAME' | ssh pi-worker-0
    ssh pi-worker-0 'echo late; exec >&-; exec sleep 0' | cat
    """

    assert await output(world, script) == "in\nout\npi-worker-0\nlate\n"


async def test_a_death_by_signal_is_an_exit_code_above_128(world: World) -> None:
    world.start_kubelet()
    await worker(world)

    assert await output(world, f"ssh {WAIT} pi-worker-0 'kill -9 $$'; echo $?") == "137\n"


async def test_a_pod_has_the_names_that_it_has_in_a_cluster(world: World) -> None:
    world.start_kubelet()
    await world.cluster.create(NAMESPACES, {"metadata": {"name": "other"}})
    await worker(world, "a", hostname="host-a", subdomain="ring")
    await worker(world, "b", metadata={"namespace": "other"}, hostname="b", subdomain="ring")
    names = ["a", "host-a.ring", "host-a.ring.default.svc", "host-a.ring.default.svc.cluster.local."]
    script = "\n".join(f"ssh {WAIT} {name} 'echo $HOSTNAME'" for name in [*names, "b.ring.other.svc", "b.ring.other"])

    assert (await output(world, script)).split() == ["host-a"] * 4 + ["b"] * 2


async def test_a_pod_reaches_itself_and_pods_reach_each_other_through_each_other(world: World) -> None:
    """Daemons of Open MPI start further daemons."""
    world.start_kubelet()
    await worker(world)
    script = f"ssh {WAIT} pi-worker-0 'ssh launcher ssh pi-worker-0 echo again'; $TARRAGON_RSH launcher echo self"

    assert await output(world, script) == "again\nself\n"


def path_of(folder: Path) -> dict[str, object]:
    """A container that has no programs but a shell and those in this folder."""
    (folder / "sh").symlink_to("/bin/sh")
    return {"env": [{"name": "PATH", "value": str(folder)}]}


async def test_an_unknown_host_is_one_sentence_and_255(world: World, tmp_path: Path) -> None:
    world.start_kubelet()
    await world.cluster.create(NAMESPACES, {"metadata": {"name": "other"}})
    await worker(world, "elsewhere", metadata={"namespace": "other"})
    (tmp_path / "programs").mkdir()
    script = f"$TARRAGON_RSH {WAIT} elsewhere.other.svc true; ssh elsewhere true; echo $?; ssh ../other/elsewhere; ssh"

    printed = await output(world, script, container=path_of(tmp_path / "programs"))

    assert printed == (
        "ssh: no pod with the host name elsewhere has started on this machine (namespace default)\n255\n"
        "ssh: no pod with the host name ../other/elsewhere has started on this machine (namespace default)\n"
        "ssh: usage: ssh [--container NAME] HOST [COMMAND...]\n"
    )


async def test_hosts_outside_the_cluster_are_left_to_the_real_ssh(world: World, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "ssh").write_text('#!/bin/sh\necho real "$@"\n')
    (programs / "ssh").chmod(0o755)
    world.start_kubelet()
    script = "ssh -p 22 git@example.com 'a  b'; ssh -V; ssh gone.ring.default.svc true; $TARRAGON_RSH example.com true"

    printed = await output(world, script, container=path_of(programs))

    assert printed == (
        "real -p 22 git@example.com a  b\nreal -V\n"
        "ssh: no pod with the host name gone.ring.default.svc has started on this machine (namespace default)\n"
        "tarragon-rsh: no pod with the host name example.com has started on this machine (namespace default)\n"
    )


async def test_a_pod_without_a_running_container_cannot_be_reached(world: World) -> None:
    world.start_kubelet()
    await worker(world, script="true", restartPolicy="Never")
    await world.phase("Succeeded", "pi-worker-0")

    assert await output(world, "ssh pi-worker-0 true; echo $?") == (
        "ssh: the container main of pi-worker-0 is not running\n255\n"
    )


def test_programs_that_a_killed_kubelet_left_without_permissions_become_executable(tmp_path: Path) -> None:
    programs = NodePrograms(NodeFolder(tmp_path))
    ssh = programs.install("default") / "ssh"
    ssh.chmod(0o600)  # as a file is between its write and its chmod

    programs.install("default")

    assert os.access(ssh, os.X_OK)


def test_a_command_may_end_as_soon_as_it_has_started(tmp_path: Path) -> None:
    """The shim closes the connection after its reply."""
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_STREAM)

    def reply() -> None:
        theirs.recv(1000)
        theirs.send(b'{"pid": 7}\n{"code": 3}\n')
        theirs.close()

    class EndsAtOnce:
        """A connection whose other end replies while the request is being sent."""

        sendall, recv = ours.sendall, ours.recv

        def sendmsg(self, *message: Any) -> int:
            sent = ours.sendmsg(*message)
            reply()
            return sent

    code = Connection(EndsAtOnce(), str(tmp_path)).execute(["true"], [])  # type: ignore[arg-type]

    ours.close()
    assert code == 3


async def test_another_container_can_be_named(world: World) -> None:
    world.start_kubelet()
    await world.create(
        "pi-worker-0",
        container_json(name="main", command=["sh", "-c", FOREVER]),
        container_json(name="side", command=["sh", "-c", FOREVER], env=[{"name": "COLOR", "value": "green"}]),
    )
    script = f"""
    $TARRAGON_RSH {WAIT} --container side pi-worker-0 'echo $COLOR'
    $TARRAGON_RSH --container=side pi-worker-0 'echo $COLOR'
    $TARRAGON_RSH pi-worker-0 --container main 'echo -$COLOR'
    $TARRAGON_RSH --container no pi-worker-0 true
    """

    assert await output(world, script) == (
        "green\ngreen\n-\ntarragon-rsh: pi-worker-0 has no container no, only main, side\n"
    )


async def running(world: World, name: str) -> Path:
    """The folder of the container's first run, once it is running."""
    pod = await world.phase("Running", name)
    return world.node / "pods" / str(pod["metadata"]["uid"]) / "runs/main/0"


def commands_of(run: Path) -> list[int]:
    """The descendants of the container's shim, apart from the container's own processes."""
    own = {main_pid(run), *processes.descendants(main_pid(run))}
    return [pid for pid in processes.descendants(shim_pid(run)) if pid not in own]


def shim_pid(run: Path) -> int:
    found = state_of(run)
    assert found
    assert found.shim
    return found.shim.pid


def main_pid(run: Path) -> int:
    found = state_of(run)
    assert found
    assert found.main
    return found.main.pid


TREE = "sleep 601 & setsid sleep 602 & echo started; wait"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
async def test_a_command_ends_with_its_agent(world: World, signum: int) -> None:
    world.start_kubelet()
    await worker(world)
    run = await running(world, "pi-worker-0")
    await world.run(
        f"ssh pi-worker-0 '{TREE}' & echo agent $$$$ $!; wait $!; echo ended", "launcher", restartPolicy="Never"
    )
    await world.says("started", "launcher")
    assert len(commands_of(run)) == 3

    words = (await world.log("launcher")).split()
    os.kill(int(words[words.index("agent") + 2]), signum)

    await world.says("ended", "launcher")
    await eventually(lambda: not commands_of(run))


@pytest.mark.parametrize("victim", ["container", "shim"])
async def test_commands_end_with_their_container(world: World, victim: str) -> None:
    world.start_kubelet()
    await worker(world, restartPolicy="Never")
    run = await running(world, "pi-worker-0")
    await world.run(f"ssh pi-worker-0 '{TREE}'; echo $?", "launcher", restartPolicy="Never")
    await world.says("started", "launcher")
    commands = commands_of(run)

    os.kill(main_pid(run) if victim == "container" else shim_pid(run), signal.SIGKILL)

    await world.phase("Failed", "pi-worker-0")
    await world.phase("Succeeded", "launcher")
    lost = "ssh: the container of pi-worker-0 ended while the command ran\n255\n"
    assert await world.log("launcher") == "started\n" + ("137\n" if victim == "container" else lost)
    assert not [pid for pid in commands if (stat := processes.process_stat(pid)) and stat[0] not in "ZX"]


async def test_agents_go_on_while_the_kubelet_restarts(world: World, tmp_path: Path) -> None:
    world.start_kubelet()
    await worker(world)
    await running(world, "pi-worker-0")
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    await world.run(
        f"ssh pi-worker-0 'echo started; cat {pipe}'; ssh pi-worker-0 echo again", "launcher", restartPolicy="Never"
    )
    await world.says("started", "launcher")

    await world.stop_kubelet()
    pipe.write_text("after\n")
    world.start_kubelet()

    await world.says("after\nagain\n", "launcher")


def host_names(world: World) -> list[str]:
    hosts = world.node.parent / "_hosts"
    return sorted(str(path.relative_to(hosts)) for path in hosts.glob("*/*"))


async def test_the_names_of_a_pod_go_with_it(world: World) -> None:
    world.start_kubelet()
    await world.run("true", "done", restartPolicy="Never", hostname="x", subdomain="ring")
    await world.run(FOREVER, "kept")
    await world.phase("Succeeded", "done")
    await world.phase("Running", "kept")
    assert host_names(world) == ["default/done", "default/kept", "default/x.ring"]

    await world.delete("done")
    await world.vanished("done")

    await eventually(lambda: host_names(world) == ["default/kept"])


async def test_the_names_of_lost_pods_are_removed_at_the_next_start(world: World) -> None:
    hosts = world.node.parent / "_hosts/default"
    hosts.mkdir(parents=True)
    (hosts / "lost").write_text(f"{world.node}/pods/lost-uid\nmain")
    (hosts / "other").write_text(f"{world.node.parent}/m/pods/other-uid\nmain")

    world.start_kubelet()

    await eventually(lambda: host_names(world) == ["default/other"])


async def test_the_next_pod_of_a_name_is_reached_by_it(world: World) -> None:
    world.start_kubelet()
    await worker(world)
    first = await world.phase("Running", "pi-worker-0")
    await world.delete("pi-worker-0", grace=0)
    await worker(world)
    second = await world.phase("Running", "pi-worker-0")

    await eventually(lambda: not (world.node / "pods" / first["metadata"]["uid"]).exists())

    entry = world.node.parent / "_hosts/default/pi-worker-0"
    assert entry.read_text() == f"{world.node}/pods/{second['metadata']['uid']}\nmain"


async def test_sshd_is_replaced_by_a_container_that_sleeps(world: World) -> None:
    world.start_kubelet()
    await world.create("pi-worker-0", container_json(command=["/usr/sbin/sshd", "-De"]), restartPolicy="Never")
    await world.phase("Running", "pi-worker-0")
    main = main_pid(await running(world, "pi-worker-0"))
    # The shell has set its trap once it has a child.
    await eventually(lambda: bool(Path(f"/proc/{main}/task/{main}/children").read_text()))
    assert await output(world, "ssh pi-worker-0 'echo $HOSTNAME'") == "pi-worker-0\n"

    os.kill(main, signal.SIGTERM)

    assert terminated(await world.phase("Succeeded", "pi-worker-0"))["exitCode"] == 0


@pytest.mark.parametrize(
    "argv", [["/usr/sbin/sshd", "-De"], ["sshd", "-D"], ["/usr/sbin/sshd", "-f", "/x", "-e", "-D"]]
)
def test_sshd_in_the_foreground_is_replaced(argv: list[str]) -> None:
    assert without_sshd(argv)[0] == "/bin/sh"


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["/usr/sbin/sshd"],
        ["/usr/sbin/sshd", "-t"],
        ["/usr/sbin/sshd-session", "-D"],
        ["/bin/sh", "-c", "exec /usr/sbin/sshd -De"],
        ["python", "sshd", "-D"],
    ],
)
def test_other_commands_are_not_replaced(argv: list[str]) -> None:
    assert without_sshd(argv) == argv


@pytest.mark.parametrize(
    ("words", "host", "command", "container", "attempts"),
    [
        (["h", "a", "-x", "b"], "h", "a -x b", "", 1),
        (["-x", "h"], "h", "", "", 1),
        (["-xqp22", "-oConnectionAttempts=10", "h", "a"], "h", "a", "", 10),
        (["-o", "connectionattempts 5", "-F", "/dev/null", "u@h", "a"], "h", "a", "", 5),
        (["h", "-l", "root", "a"], "h", "a", "", 1),
        (["h", "--", "-a"], "h", "-a", "", 1),
        (["--container", "c", "h", "a"], "h", "a", "c", 1),
        (["-p"], "", "", "", 1),
        ([], "", "", "", 1),
    ],
)
def test_options_are_read_as_by_ssh(words: list[str], host: str, command: str, container: str, attempts: int) -> None:
    read = Arguments(words)

    assert (read.host, read.command, read.container, read.attempts) == (host, command, container, attempts)


@pytest.mark.parametrize("host", ["", ".", "a..b", "../x/a", "/etc/passwd", "a/b"])
def test_a_name_that_no_host_can_have_is_not_looked_up(host: str) -> None:
    assert list(entry_names(host, "default")) == []


def test_a_namespace_can_be_named_like_the_domain_of_services() -> None:
    assert ("svc", "a.b") in entry_names("a.b.svc.svc.cluster.local", "default")


def test_daemons_of_open_mpi_get_a_host_name_of_their_own() -> None:
    words = shell_words('PATH=/x; prted --prtemca ess "env" --prtemca ess_base_vpid 1', "pi-worker-0", "/run folder")

    assert words[0] == "env"
    assert "SLURMD_NODENAME=pi-worker-0" in words
    assert words[-1] == 'PATH=/x; prted --prtemca ess "slurm" --prtemca ess_base_vpid 1'
    assert shell_words("hydra_pmi_proxy --x", "pi-worker-0", "/run") == ["/bin/sh", "-c", "hydra_pmi_proxy --x"]


@pytest.mark.parametrize(
    ("variables", "argv"),
    [
        ({"OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile"}, ["python"]),
        ({"HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, ["python"]),
        ({"I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile"}, ["python"]),
        ({}, ["/opt/bin/mpirun", "-np", "2"]),
        ({}, ["sh", "-c", "cd /x; mpiexec.hydra -n 2 python x.py"]),
    ],
)
def test_containers_with_mpi_get_defaults_for_a_shared_machine(variables: dict[str, str], argv: list[str]) -> None:
    assert mpi_variables(variables, argv, 1000, Path("/run"))["I_MPI_PIN"] == "0"
    assert "OMPI_ALLOW_RUN_AS_ROOT" not in mpi_variables(variables, argv, 1000, Path("/run"))
    assert mpi_variables(variables, argv, 0, Path("/run"))["PRTE_MCA_prte_tmpdir_base"] == "/run"
    assert mpi_variables(variables, argv, 0, Path("/run"))["OMPI_ALLOW_RUN_AS_ROOT"] == "1"


def test_other_containers_get_no_variables_for_mpi() -> None:
    assert mpi_variables({"TF_CONFIG": "{}", "COMPILER": "gcc"}, ["python", "mpirunner.py"], 0, Path("/run")) == {}
