"""TensorBoard: its event files are imported, and a script that writes them is recorded as well."""

from stepscope.model.dialects import Dialect

DIALECT = Dialect(
    name="tensorboard",
    importer="stepscope.dialects.tensorboard.importer:SOURCES",
    media="stepscope.dialects.tensorboard.media:TensorBoardMedia",
)
