"""The files in `deploy/` describe the cluster that the tests run: the same shards and settings, and no file lacks."""

import json
import re
import tomllib
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
    """The hubs' address names every server of the cluster and its read-only user."""
    from stepscope.hub.store.cluster.address import parse

    for name in ("hub-0", "hub-1"):
        assert compose["services"][name]["command"] == ["--advertise", f"http://{name}:4318"]
        text = compose["services"][name]["environment"]["STEPSCOPE_STORE"]
        store = parse(text.replace("${CLICKHOUSE_PASSWORD:?}", "a").replace("${READER_PASSWORD:?}", "b"))
        assert {host for host, _ in store.hosts} == {each for each in compose["services"] if "clickhouse-" in each}
        assert store.cluster == CLUSTER
        reader = ElementTree.parse(DEPLOY / "clickhouse" / "reader.xml").getroot()
        assert store.sql_user in {user.tag for user in reader.find("users") or ()}


def test_the_image_starts_a_hub(compose: dict[str, Any]) -> None:
    """With options, variables and an extra that exist; its home is on the volume, its ports are those of a hub."""
    from stepscope.cli.main import parser
    from stepscope.hub.home_store import VARIABLE

    image = (DEPLOY / "Dockerfile").read_text()
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]
    assert re.findall(r"'/src\[(\w+)\]'", image) == ["cluster"]
    assert "cluster" in project["optional-dependencies"]
    entry = json.loads(image.partition("ENTRYPOINT ")[2])
    assert entry[0] in project["scripts"]
    home = image.partition("ENV STEPSCOPE_HOME=")[2].split()[0]
    published = []
    for name in ("hub-0", "hub-1"):
        service = compose["services"][name]
        given = parser(entry[1:2]).parse_args([*entry[1:], *service["command"]])
        own = {str(given.port), str(given.grpc_port)}
        assert {port.partition(":")[2] for port in service["ports"]} == own == set(_words(image, "EXPOSE"))
        assert (set(service["environment"]), service["volumes"]) == ({VARIABLE}, [f"{name}:{home}"])
        published += [port.partition(":")[0] for port in service["ports"]]
    assert len(set(published)) == len(published)


def test_servers_and_keepers_find_each_other(compose: dict[str, Any]) -> None:
    """Ports are the same on both sides, and what a configuration takes from the environment is there."""
    cluster, keeper, reader = (
        ElementTree.parse(DEPLOY / "clickhouse" / f"{name}.xml").getroot() for name in ("cluster", "keeper", "reader")
    )
    assert {node.findtext("port") for node in cluster.iter("node")} == {keeper.findtext("keeper_server/tcp_port")}
    assert len({server.findtext("id") for server in keeper.iter("server")}) == 3
    for kind, files in (("clickhouse-", (cluster, reader)), ("keeper-", (keeper,))):
        wanted = {part.get("from_env") for file in files for part in file.iter()} - {None}
        for name, service in compose["services"].items():
            assert not name.startswith(kind) or set(service["environment"]) >= wanted, name
    ids = {each["environment"]["KEEPER_ID"] for name, each in compose["services"].items() if "keeper-" in name}
    assert ids == {server.findtext("id") for server in keeper.iter("server")}


def _words(text: str, instruction: str) -> list[str]:
    return text.partition(f"{instruction} ")[2].splitlines()[0].split()
