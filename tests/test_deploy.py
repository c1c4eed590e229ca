"""The files in `deploy/` describe the cluster that the tests run: the same shards and settings, and no file lacks."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from stepscope.testing.clickhouse_cluster import CLUSTER, configured

DEPLOY = Path(__file__).parents[1] / "deploy"


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    """The compose file."""
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    return found


def _shape(root: ElementTree.Element) -> Any:
    """A configuration without the names and ports of hosts and without the password."""
    shards = root.findall(f"remote_servers/{CLUSTER}/shard")
    return {
        "shards": [
            (
                shard.findtext("internal_replication"),
                [sorted(part.tag for part in each) for each in shard.iter("replica")],
            )
            for shard in shards
        ],
        "ddl": root.findtext("distributed_ddl/path"),
        "macros": sorted(part.tag for part in root.find("macros") or ()),
        "keeper": sorted({part.tag for node in root.iter("node") for part in node}),
    }


def test_the_cluster_is_the_one_that_the_tests_run(tmp_path: Path) -> None:
    """Apart from hosts, ports and the number of Keepers."""
    ours = ElementTree.parse(DEPLOY / "clickhouse" / "cluster.xml").getroot()
    for shard in configured(tmp_path).servers:
        for server in shard:
            assert _shape(ours) == _shape(ElementTree.fromstring(f"<yandex>{server.more}</yandex>"))


def test_compose_has_every_host_and_file(compose: dict[str, Any]) -> None:
    """Two hubs, four servers and three Keepers, each with its own volume, its number and the files it needs."""
    services = compose["services"]
    kinds = [sum(name.startswith(kind) for name in services) for kind in ("hub-", "clickhouse-", "keeper-")]
    assert kinds == [2, 4, 3]
    config = ElementTree.parse(DEPLOY / "clickhouse" / "cluster.xml").getroot()
    assert {host.text for host in config.iter("host")} == {name for name in services if not name.startswith("hub-")}
    raft = ElementTree.parse(DEPLOY / "clickhouse" / "keeper.xml").getroot()
    assert {host.text for host in raft.iter("hostname")} == {name for name in services if name.startswith("keeper-")}
    for name, service in services.items():
        mounts = [mount.split(":")[0] for mount in service["volumes"]]
        assert all((DEPLOY / mount).is_file() for mount in mounts if mount.startswith(".")), name
        assert [mount for mount in mounts if not mount.startswith(".")] == [name]
        assert name in compose["volumes"]
        if name.startswith("clickhouse-"):
            numbers = service["environment"]["SHARD"], service["environment"]["REPLICA"]
            assert name == "clickhouse-{}-{}".format(*numbers)


def test_the_hubs_name_every_server(compose: dict[str, Any]) -> None:
    """Of the cluster that the servers have, with the read-only user of theirs."""
    from stepscope.hub.store.cluster.address import parse

    for name in ("hub-0", "hub-1"):
        assert compose["services"][name]["command"] == ["--advertise", f"http://{name}:4318"]
        text = compose["services"][name]["environment"]["STEPSCOPE_STORE"]
        store = parse(text.replace("${CLICKHOUSE_PASSWORD:?}", "a").replace("${READER_PASSWORD:?}", "b"))
        assert {host for host, _ in store.hosts} == {each for each in compose["services"] if "clickhouse-" in each}
        assert store.cluster == CLUSTER
        reader = ElementTree.parse(DEPLOY / "clickhouse" / "reader.xml").getroot()
        assert store.sql_user in {user.tag for user in reader.find("users") or ()}
