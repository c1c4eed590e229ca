"""Weights & Biases: its client's requests are received, its files imported, and its Python interface provided."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="wandb",
    receiver="stepscope.dialects.wandb.receiver.service:Wandb",
    importer="stepscope.dialects.wandb.importer:SOURCES",
    media="stepscope.dialects.wandb.media:WandbMedia",
    client_state="kept",
    reads_back=True,
)
