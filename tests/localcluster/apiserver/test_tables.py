"""The tables of `kubectl get`, column by column."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from tarragon.localcluster.api.jsonpath import BadPath, find
from tarragon.localcluster.kinds.registry import PrinterColumn, ServedKind
from tarragon.localcluster.tables.columns import columns_of
from tarragon.localcluster.tables.table import TableOptions, duration, table

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
FIVE_MINUTES_AGO = "2026-11-21T09:55:00Z"


def served(plural: str, group: str = "") -> ServedKind:
    return ServedKind(group=group, version="v1", plural=plural, kind="Any")


def row(kind: ServedKind, value: dict[str, Any]) -> dict[str, Any]:
    """The cells of one object by their headings."""
    value = {"metadata": {"name": "a", "creationTimestamp": FIVE_MINUTES_AGO}, **value}
    columns = columns_of(kind)
    cells = table(columns, [value], TableOptions(), NOW)["rows"][0]["cells"]
    return dict(zip([column.name for column in columns], cells, strict=True))


def pod(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """A pod whose containers are in the given states; each is a containerStatus without its name."""
    init = init or []
    spec = {
        "containers": [{"name": f"c{i}"} for i, _ in enumerate(containers)] or [{"name": "c0"}],
        "initContainers": [
            {"name": f"i{i}", **({"restartPolicy": "Always"} if state.get("sidecar") else {})}
            for i, state in enumerate(init)
        ],
    }
    status = {
        "phase": more.pop("phase", "Running"),
        "containerStatuses": [{"name": f"c{i}", **state} for i, state in enumerate(containers)],
        "initContainerStatuses": [{"name": f"i{i}", **state} for i, state in enumerate(init)],
        **more.pop("status", {}),
    }
    return {"spec": spec, "status": status, **more}


RUNNING = {"ready": True, "state": {"running": {}}}
DONE = {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
CREATING = {"state": {"waiting": {"reason": "ContainerCreating"}}}
CRASHING = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 4}
KILLED = {"state": {"terminated": {"exitCode": 137, "signal": 9}}}
FAILED = {"state": {"terminated": {"exitCode": 3, "reason": "Error"}}}
INITIALIZED = {"conditions": [{"type": "Initialized", "status": "True"}]}


@pytest.mark.parametrize(
    ("state", "ready", "word"),
    [
        (pod(phase="Pending"), "0/1", "Pending"),
        (pod(CREATING, phase="Pending"), "0/1", "ContainerCreating"),
        (pod(RUNNING, RUNNING), "2/2", "Running"),
        (pod(RUNNING, CRASHING), "1/2", "CrashLoopBackOff"),
        (pod(DONE, phase="Succeeded"), "0/1", "Completed"),
        (pod(FAILED, phase="Failed"), "0/1", "Error"),
        (pod(KILLED, phase="Failed"), "0/1", "Signal:9"),
        (pod({"state": {"terminated": {"exitCode": 3}}}, phase="Failed"), "0/1", "ExitCode:3"),
        (pod(DONE, RUNNING, status={"conditions": [{"type": "Ready", "status": "True"}]}), "1/2", "Running"),
        (pod(DONE, RUNNING), "1/2", "NotReady"),
        (pod(phase="Failed", status={"reason": "Evicted"}), "0/1", "Evicted"),
        (pod(RUNNING, init=[DONE], status=INITIALIZED), "1/1", "Running"),
        (pod(CREATING, init=[{"state": {"running": {}}}, CREATING], phase="Pending"), "0/1", "Init:0/2"),
        (pod(CREATING, init=[DONE, {"state": {"waiting": {"reason": "PodInitializing"}}}]), "0/1", "Init:1/2"),
        (pod(CREATING, init=[CRASHING]), "0/1", "Init:CrashLoopBackOff"),
        (pod(CREATING, init=[FAILED]), "0/1", "Init:Error"),
        (pod(CREATING, init=[KILLED]), "0/1", "Init:Signal:9"),
        (pod(RUNNING, init=[{**RUNNING, "started": True, "sidecar": True}], status=INITIALIZED), "2/2", "Running"),
        (
            pod(status={"conditions": [{"type": "PodScheduled", "reason": "SchedulingGated", "status": "False"}]}),
            "0/1",
            "SchedulingGated",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_has_the_status_that_kubectl_shows(state: dict[str, Any], ready: str, word: str) -> None:
    cells = row(served("pods"), state)

    assert (cells["Ready"], cells["Status"]) == (ready, word)


def test_a_deleted_pod_is_terminating_until_it_has_ended() -> None:
    meta = {"name": "a", "deletionTimestamp": FIVE_MINUTES_AGO, "creationTimestamp": FIVE_MINUTES_AGO}

    assert row(served("pods"), pod(RUNNING, metadata=meta))["Status"] == "Terminating"
    assert row(served("pods"), pod(DONE, phase="Succeeded", metadata=meta))["Status"] == "Completed"
    assert row(served("pods"), pod(RUNNING, metadata=meta, status={"reason": "NodeLost"}))["Status"] == "Unknown"


def test_restarts_show_the_time_since_the_last_one() -> None:
    died = {"lastState": {"terminated": {"finishedAt": "2026-11-21T09:57:00Z"}}}
    cells = row(served("pods"), pod({**CRASHING, **died}, {**RUNNING, "restartCount": 1}))

    assert cells["Restarts"] == "5 (3m ago)"
    assert row(served("pods"), pod(CRASHING))["Restarts"] == "4"


def test_the_restarts_of_init_containers_count_only_while_the_pod_initializes() -> None:
    assert row(served("pods"), pod(CREATING, init=[CRASHING]))["Restarts"] == "4"
    after = pod(RUNNING, init=[{**DONE, "restartCount": 4}], status=INITIALIZED)
    assert row(served("pods"), after)["Restarts"] == "0"


def test_only_the_wide_table_shows_where_a_pod_runs() -> None:
    columns = {column.name: column.priority for column in columns_of(served("pods"))}
    cells = row(served("pods"), {"spec": {"nodeName": "laptop"}, "status": {"podIP": "10.0.0.1"}})

    assert (columns["IP"], columns["Node"], columns["Status"]) == (1, 1, 0)
    assert (cells["IP"], cells["Node"], cells["Nominated Node"]) == ("10.0.0.1", "laptop", "<none>")


@pytest.mark.parametrize(
    ("plural", "value", "expected"),
    [
        (
            "services",
            {
                "spec": {
                    "clusterIP": "None",
                    "ports": [{"port": 2222, "protocol": "TCP"}],
                    "selector": {"b": "2", "a": "1"},
                }
            },
            {
                "Type": "ClusterIP",
                "Cluster-IP": "None",
                "External-IP": "<none>",
                "Port(s)": "2222/TCP",
                "Selector": "a=1,b=2",
            },
        ),
        (
            "services",
            {"spec": {"type": "NodePort", "clusterIP": "10.0.0.7", "ports": [{"port": 80, "nodePort": 30080}]}},
            {"Type": "NodePort", "Cluster-IP": "10.0.0.7", "Port(s)": "80:30080/TCP"},
        ),
        ("services", {"spec": {"type": "LoadBalancer"}}, {"External-IP": "<pending>", "Port(s)": "<none>"}),
        (
            "services",
            {"spec": {"type": "ExternalName", "externalName": "db.example"}},
            {"Cluster-IP": "<none>", "External-IP": "db.example"},
        ),
        (
            "nodes",
            {
                "metadata": {"name": "a", "labels": {"node-role.kubernetes.io/worker": ""}},
                "spec": {"unschedulable": True},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "nodeInfo": {"kubeletVersion": "v1"},
                    "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                },
            },
            {
                "Status": "Ready,SchedulingDisabled",
                "Roles": "worker",
                "Age": "<unknown>",
                "Version": "v1",
                "Internal-IP": "127.0.0.1",
                "OS-Image": "<unknown>",
            },
        ),
        ("nodes", {}, {"Status": "Unknown", "Roles": "<none>"}),
        ("configmaps", {"data": {"a": "1"}, "binaryData": {"b": "Yg=="}}, {"Data": 2, "Age": "5m"}),
        ("secrets", {"type": "kubernetes.io/tls"}, {"Type": "kubernetes.io/tls", "Data": 0}),
        ("namespaces", {"status": {"phase": "Terminating"}}, {"Status": "Terminating"}),
        (
            "persistentvolumeclaims",
            {
                "spec": {"volumeName": "v", "storageClassName": "local"},
                "status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
            },
            {"Status": "Bound", "Volume": "v", "Capacity": "1Gi", "Access Modes": "RWO", "StorageClass": "local"},
        ),
        (
            "events",
            {
                "involvedObject": {"kind": "Pod", "name": "p"},
                "type": "Warning",
                "reason": "BackOff",
                "message": " again \n",
                "firstTimestamp": "2026-11-21T08:00:00Z",
                "lastTimestamp": FIVE_MINUTES_AGO,
                "source": {"component": "kubelet", "host": "laptop"},
                "count": 7,
            },
            {
                "Last Seen": "5m",
                "First Seen": "120m",
                "Object": "pod/p",
                "Message": "again",
                "Source": "kubelet, laptop",
                "Count": 7,
            },
        ),
        ("events", {"eventTime": "2026-11-21T09:59:00.000000Z"}, {"Last Seen": "60s", "Count": 1}),
        (
            "endpoints",
            {"subsets": [{"addresses": [{"ip": f"10.0.0.{i}"} for i in range(5)], "ports": [{"port": 80}]}]},
            {"Endpoints": "10.0.0.0:80,10.0.0.1:80,10.0.0.2:80 + 2 more..."},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_built_in_kinds_have_the_columns_of_kubectl(
    plural: str, value: dict[str, Any], expected: dict[str, Any]
) -> None:
    cells = row(served(plural), value)

    assert {name: cells[name] for name in expected} == expected


def test_custom_resource_definitions_show_when_they_were_created() -> None:
    cells = row(served("customresourcedefinitions", "apiextensions.k8s.io"), {})

    assert cells == {"Name": "a", "Created At": FIVE_MINUTES_AGO}


def widget(*columns: PrinterColumn) -> ServedKind:
    return ServedKind(
        group="example.dev", version="v1", plural="widgets", kind="Widget", printer_columns=columns, is_custom=True
    )


def test_a_custom_kind_without_columns_shows_its_age() -> None:
    assert row(widget(), {}) == {"Name": "a", "Age": "5m"}


@pytest.mark.parametrize(
    ("kind", "path", "shown"),
    [
        ("string", ".spec.color", "red"),
        ("string", ".spec.size", "3"),
        ("string", ".spec.list", '["x","y"]'),
        ("string", ".spec.fast", "true"),
        ("integer", ".spec.size", 3),
        ("integer", ".spec.color", None),
        ("integer", ".spec.fast", None),
        ("number", ".spec.size", 3.0),
        ("boolean", ".spec.fast", True),
        ("boolean", ".spec.size", None),
        ("date", ".metadata.creationTimestamp", "5m"),
        ("date", ".spec.color", "<invalid>"),
        ("string", ".status.none", None),
        ("string", "[[", None),
    ],
)
def test_a_custom_column_is_empty_for_values_of_another_type(kind: str, path: str, shown: object) -> None:
    spec = {"color": "red", "size": 3, "fast": True, "list": ["x", "y"]}
    cells = row(widget(PrinterColumn(name="X", type=kind, json_path=path)), {"spec": spec})

    assert cells["X"] == shown
    assert type(cells["X"]) is type(shown)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".spec.a", [1]),
        ("{.spec.a}", [1]),
        ("spec.a", [1]),
        ("$.spec['a']", [1]),
        (r".labels.app\.kubernetes\.io/name", ["web"]),
        ('.labels["app.kubernetes.io/name"]', ["web"]),
        (".conditions[0].type", ["Ready"]),
        (".conditions[-1].type", ["Done"]),
        (".conditions[7].type", []),
        (".conditions[*].type", ["Ready", "Done"]),
        ('.conditions[?(@.type=="Done")].status', ["False"]),
        ("..", BadPath),
        (".conditions[?(@.type=='Done')].status", ["False"]),
        ('.conditions[?(@.type != "Done")].status', ["True"]),
        (".conditions[?(@.count==2)].type", ["Done"]),
        (".spec.a.b", []),
        ("", [...]),
        (".a[b", BadPath),
    ],
)
def test_a_path_finds_all_its_values(path: str, found: Any) -> None:
    value = {
        "spec": {"a": 1},
        "labels": {"app.kubernetes.io/name": "web"},
        "conditions": [
            {"type": "Ready", "status": "True", "count": 1},
            {"type": "Done", "status": "False", "count": 2},
        ],
    }
    if found is BadPath:
        with pytest.raises(BadPath):
            find(path, value)
    else:
        assert find(path, value) == [value if expected is ... else expected for expected in found]


def test_one_malformed_object_does_not_hide_the_others() -> None:
    broken = {"metadata": {"name": "b"}, "spec": {"containers": 3}, "status": {"containerStatuses": "none"}}
    good = {"metadata": {"name": "a"}, **pod(RUNNING)}
    rows = table(columns_of(served("pods")), [broken, good], TableOptions(), NOW)["rows"]

    assert [cells["cells"][:3] for cells in rows] == [["b", "<invalid>", "<invalid>"], ["a", "1/1", "Running"]]


def test_each_row_includes_as_much_of_its_object_as_requested() -> None:
    value = {"kind": "Pod", "metadata": {"name": "a"}, "spec": {}}

    def attached(shape: TableOptions) -> Any:
        return table(columns_of(served("pods")), [value], shape, NOW)["rows"][0]["object"]

    assert attached(TableOptions(include="None")) is None
    assert attached(TableOptions(include="Object")) == value
    assert attached(TableOptions(version="v1beta1")) == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1beta1",
        "metadata": {"name": "a"},
    }


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-30, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (303, "5m3s"),
        (600, "10m"),
        (10799, "179m"),
        (10800, "3h"),
        (11000, "3h3m"),
        (8 * 3600, "8h"),
        (47 * 3600 + 59, "47h"),
        (48 * 3600, "2d"),
        (75 * 3600, "3d3h"),
        (8 * 86400 + 3600, "8d"),
        (3 * 365 * 86400, "3y"),
        (3 * 365 * 86400 + 86400, "3y1d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_a_duration_has_no_more_detail_than_matters(seconds: int, told: str) -> None:
    assert duration(dt.timedelta(seconds=seconds)) == told
