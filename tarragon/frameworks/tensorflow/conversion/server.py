"""The default parameter server for generations that have none: an ordinary container that includes its program."""

from __future__ import annotations

from tarragon.frameworks.tensorflow.default_server import SCRIPT, VOLUME, script
from tarragon.frameworks.tensorflow.fields import MAIN_CONTAINER
from tarragon.job.model import ReplicaSpec
from tarragon.kube.meta import Json, JsonObject

ARGUMENTS = f"""\
import json, os, sys
config = json.loads(os.environ["TF_CONFIG"])
groups = sorted(config["cluster"].items())
cluster = ",".join("%s|%s" % (kind, ";".join(hosts)) for kind, hosts in groups)
task = config["task"]
program = sys.argv.pop()
sys.argv[1:] = ["--cluster_spec", cluster, "--job_name", task["type"], "--task_id", str(task["index"])]
exec(compile(program, "{SCRIPT}", "exec"))
"""
"""The default server gets its cluster from the command line, all other containers from TF_CONFIG."""

COMMAND = ("sh", "-c", 'exec "$(command -v python || command -v python3)" "$@"', "python", "-c")


def standard_server(group: ReplicaSpec) -> dict[str, Json]:
    """The template that the dialect created, with nothing that the operator would have to add."""
    spec = group.template.get("spec", {})
    containers = [_serving(each) if each.get("name") == MAIN_CONTAINER else each for each in spec.get("containers", [])]
    volumes = [each for each in spec.get("volumes", []) if each.get("name") != VOLUME]
    rest = {name: value for name, value in spec.items() if name != "volumes"}
    own = {**rest, "containers": containers, **({"volumes": volumes} if volumes else {})}
    return {**group.template, "spec": own}


def _serving(container: JsonObject) -> dict[str, Json]:
    mounts = [mount for mount in container.get("volumeMounts", []) if mount.get("name") != VOLUME]
    rest = {name: value for name, value in container.items() if name != "volumeMounts"}
    return {**rest, "command": [*COMMAND, ARGUMENTS, script()], **({"volumeMounts": mounts} if mounts else {})}
