"""Servers that are connected to with TLS."""

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from stepscope.testing.clickhouse import LOOPBACK, ServerProcess, free_port
from stepscope.testing.clickhouse_cluster import CLUSTER, ClusterProcesses


@dataclass(frozen=True, slots=True)
class Tls:
    """A certificate for loopback that signs itself, and its key."""

    certificate: Path
    key: Path


def make_tls(folder: Path) -> Tls | None:
    """Make a certificate in a folder; None when openssl is not installed."""
    if shutil.which("openssl") is None:
        return None
    made = Tls(folder / "certificate.pem", folder / "key.pem")
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=localhost", "-addext", f"subjectAltName=DNS:localhost,IP:{LOOPBACK}"]
    command = ["openssl", "req", "-x509", *kind, *names, "-keyout", str(made.key), "-out", str(made.certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return made


def with_tls(server: ServerProcess, tls: Tls) -> ServerProcess:
    """The same server with one more port, for connections with TLS."""
    port = free_port()
    more = f"""{server.more}<tcp_port_secure>{port}</tcp_port_secure><openSSL><server>
        <certificateFile>{tls.certificate}</certificateFile><privateKeyFile>{tls.key}</privateKeyFile>
        <verificationMode>none</verificationMode></server></openSSL>"""
    return replace(server, more=more, more_ports=(*server.more_ports, port))


def secure_url(cluster: ClusterProcesses, tls: Tls, database: str) -> str:
    """The address of a cluster as a store whose servers are connected to with TLS."""
    hosts = ",".join(f"{server.host}:{server.more_ports[0]}" for shard in cluster.servers for server in shard)
    return f"clickhouses://default:{cluster.password}@{hosts}/{database}?cluster={CLUSTER}&ca={tls.certificate}"


def tls_of(cluster: ClusterProcesses) -> Tls | None:
    """The certificate that was made beside the servers of a cluster; None when there is none."""
    folder = cluster.zookeeper.folder.parent
    made = Tls(folder / "certificate.pem", folder / "key.pem")
    return made if made.certificate.exists() else None
