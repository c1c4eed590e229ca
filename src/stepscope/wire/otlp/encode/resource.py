"""The resource that stands for a writer."""

from stepscope.model.names import ATTR_LOCAL_RANK, ATTR_RANK, ATTR_RUN_ID, ATTR_WORLD_SIZE
from stepscope.model.records import Attrs
from stepscope.model.writer import Writer
from stepscope.wire.otlp import names
from stepscope.wire.otlp.encode.attributes import Pairs
from stepscope.wire.otlp.fields import MASK, delimited, text, varint

_ATTRS = Pairs(b"\x0a")
_ASIDE = frozenset((names.ATTR_RESOURCE_SCHEMA, names.ATTR_RESOURCE_DROPPED))


def resource_of(writer: Writer) -> Attrs:
    """Describe a writer in OpenTelemetry's attributes; what its own resource says of service and host stands.

    Every process has an instance id of its own, or cumulative sums of two would interleave.
    """
    instance = f"{writer.run}-r{writer.rank}"
    if not writer.main:
        instance += f"-p{writer.pid}"
    attrs = {
        "service.name": writer.project,
        **writer.resource,
        ATTR_RUN_ID: writer.run,
        names.ATTR_PROJECT: writer.project,
        ATTR_RANK: writer.rank,
        ATTR_WORLD_SIZE: writer.world_size,
        ATTR_LOCAL_RANK: writer.local_rank,
        names.ATTR_ATTEMPT: writer.attempt,
    }
    said = attrs.get("service.instance.id")
    attrs["service.instance.id"] = said if said and writer.main else instance
    if writer.name:
        attrs[names.ATTR_RUN_NAME] = writer.name
    if writer.named_host:
        attrs["host.name"] = writer.named_host
    if writer.pid:
        attrs["process.pid"] = writer.pid
    return attrs


def write_resource(attrs: Attrs) -> bytes:
    """Write a resource with its schema URL, ready to stand in front of its scopes."""
    inside = _ATTRS.write(attrs, _ASIDE)
    if type(dropped := attrs.get(names.ATTR_RESOURCE_DROPPED)) is int and dropped:
        inside += b"\x10" + varint(dropped & MASK)
    schema_url = attrs.get(names.ATTR_RESOURCE_SCHEMA)
    return delimited(b"\x0a", inside) + (text(b"\x1a", schema_url) if type(schema_url) is str else b"")
