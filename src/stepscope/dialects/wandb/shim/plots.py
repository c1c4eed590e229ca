"""`wandb.plot`: charts of tables, which are recorded with their tables."""

import sys
from collections.abc import Iterable
from typing import Any

from stepscope.dialects.wandb.shim.absent import PartialModule, UsageError
from stepscope.dialects.wandb.shim.media import Table, WBValue
from stepscope.dialects.wandb.wire import MAX_ROWS
from stepscope.dialects.wandb.wire.plots import chart_of
from stepscope.extend import table_chart, text_of


class CustomChart(WBValue):
    """A chart of a table."""

    def __init__(self, table: Table, specification: str, fields: Any, texts: Any, *, split: bool) -> None:
        self.table, self.specification, self.fields, self.texts, self.split = table, specification, fields, texts, split

    def table_key(self, key: str) -> str:
        """Return the key under which wandb logs the table of a chart."""
        return f"Custom Chart Tables/{key}_table" if self.split else f"{key}_table"

    def captured(self) -> Any:
        """Return the chart as one of our own media; None for a specification of somebody's own."""
        drawn = chart_of(self.specification, self.fields, self.texts)
        if drawn is None:
            return None
        return table_chart([text_of(name) for name in self.table.columns], self.table.data, drawn)


def plot_table(
    vega_spec_name: str,
    data_table: Any,
    fields: Any,
    string_fields: Any = None,
    split_table: bool = False,
) -> CustomChart:
    """Make a chart of a table; UsageError when it is none, as of wandb."""
    if not isinstance(data_table, Table):
        raise UsageError(f"Expected `data_table` to be `wandb.Table` type, instead got {type(data_table).__name__}")
    return CustomChart(data_table, vega_spec_name, fields, string_fields or {}, split=bool(split_table))


def line(table: Any, x: str, y: str, stroke: Any = None, title: str = "", split_table: bool = False) -> CustomChart:
    """Draw lines."""
    return plot_table("wandb/line/v0", table, {"x": x, "y": y, "stroke": stroke}, {"title": title}, split_table)


def scatter(table: Any, x: str, y: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Draw points."""
    return plot_table("wandb/scatter/v0", table, {"x": x, "y": y}, {"title": title}, split_table)


def bar(table: Any, label: str, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Draw bars."""
    return plot_table("wandb/bar/v0", table, {"label": label, "value": value}, {"title": title}, split_table)


def histogram(table: Any, value: str, title: str = "", split_table: bool = False) -> CustomChart:
    """Draw the distribution of a column."""
    return plot_table("wandb/histogram/v0", table, {"value": value}, {"title": title}, split_table)


def line_series(
    xs: Any, ys: Any, keys: Any = None, title: str = "", xname: str = "x", split_table: bool = False
) -> CustomChart:
    """Draw lines over one x, or each over its own; ValueError when their numbers differ, as of wandb."""
    own = isinstance(xs[0], Iterable) and not isinstance(xs[0], (str, bytes))
    places = list(xs) if own else [xs] * len(ys)
    names = [f"line_{at}" for at in range(len(ys))] if keys is None else list(keys)
    if not len(places) == len(ys) == len(names):
        raise ValueError(f"{len(places)} x-series and {len(names)} keys for {len(ys)} y-series")
    parts = zip(places, names, ys, strict=True)
    rows = [[x, name, y] for across, name, up in parts for x, y in zip(across, up, strict=False)]
    fields = {"step": "step", "lineKey": "lineKey", "lineVal": "lineVal"}
    table = Table(data=rows, columns=list(fields))
    return plot_table("wandb/lineseries/v0", table, fields, {"title": title, "xname": xname}, split_table)


def confusion_matrix(
    probs: Any = None,
    y_true: Any = None,
    preds: Any = None,
    class_names: Any = None,
    title: str = "Confusion Matrix Curve",
    split_table: bool = False,
) -> CustomChart:
    """Count predictions by class; ValueError for what cannot be counted, as of wandb."""
    if probs is not None and preds is not None:
        raise ValueError("Only one of `probs` or `preds` should be provided, not both.")
    guessed = [max(range(len(row)), key=row.__getitem__) for row in probs] if probs is not None else list(preds)
    actual = list(y_true)
    if len(guessed) != len(actual):
        raise ValueError("The number of predictions and true labels must be equal.")
    classes = sorted({*guessed, *actual}) if class_names is None else list(range(len(class_names)))
    names = [f"Class_{at + 1}" for at in range(len(classes))] if class_names is None else list(class_names)
    places = {value: at for at, value in enumerate(classes)}
    counts = [[0.0] * len(names) for _ in names]
    try:
        for row, column in zip(actual, guessed, strict=True):
            counts[places[row]][places[column]] += 1
    except KeyError as error:
        raise ValueError(f"class {error} has no name") from None
    rows = [[names[row], names[column], counts[row][column]] for row in places.values() for column in places.values()]
    fields = {"Actual": "Actual", "Predicted": "Predicted", "nPredictions": "nPredictions"}
    return plot_table(
        "wandb/confusion_matrix/v1", Table(data=rows, columns=list(fields)), fields, {"title": title}, split_table
    )


def pr_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Any = None,
    classes_to_plot: Any = None,
    interp_size: int = 21,
    title: str = "Precision-Recall Curve",
    split_table: bool = False,
) -> CustomChart:
    """Draw precision over recall for each class, as wandb does."""
    numpy, metrics = _numpy(), _sklearn_metrics()
    recall = numpy.linspace(0, 1, interp_size)[::-1]
    rows: list[list[Any]] = []
    for name, truth, scores, label in _classes(y_true, y_probas, labels, classes_to_plot):
        found, reached, _ = metrics.precision_recall_curve(truth, scores, pos_label=label)
        rising = numpy.maximum.accumulate(found)[::-1]
        at = numpy.searchsorted(reached[::-1], recall, side="left")
        rows += [[name, *pair] for pair in zip(rising[at].round(3).tolist(), recall.round(3).tolist(), strict=True)]
    return _curve(["class", "precision", "recall"], rows, "recall", "precision", title, split_table)


def roc_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Any = None,
    classes_to_plot: Any = None,
    title: str = "ROC Curve",
    split_table: bool = False,
) -> CustomChart:
    """Draw the true over the false positive rate for each class, as wandb does."""
    metrics = _sklearn_metrics()
    rows: list[list[Any]] = []
    for name, truth, scores, label in _classes(y_true, y_probas, labels, classes_to_plot):
        false, true, _ = metrics.roc_curve(truth, scores, pos_label=label)
        rows += [[name, *pair] for pair in zip(false.round(3).tolist(), true.round(3).tolist(), strict=True)]
    return _curve(["class", "fpr", "tpr"], rows, "fpr", "tpr", title, split_table)


def _curve(columns: list[str], rows: list[list[Any]], x: str, y: str, title: str, split: bool) -> CustomChart:
    stride = -(-len(rows) // MAX_ROWS) or 1
    table = Table(columns=columns, data=rows[::stride])
    return plot_table("wandb/area-under-curve/v0", table, {"x": x, "y": y, "class": "class"}, {"title": title}, split)


def _classes(y_true: Any, y_probas: Any, labels: Any, chosen: Any) -> Iterable[tuple[Any, Any, Any, Any]]:
    """Yield the classes: their names, the true classes, the scores for it, and its label."""
    numpy = _numpy()
    truth, scores = numpy.array(y_true), numpy.array(y_probas)
    for at, label in enumerate(numpy.unique(truth)):
        if chosen is None or label in chosen:
            numbered = labels is not None and isinstance(label, numpy.integer)
            name = labels[label] if numbered else label.item()
            yield name, truth, scores[..., at], label


def _numpy() -> Any:
    import numpy  # needed only here

    return numpy


def _sklearn_metrics() -> Any:
    try:
        from importlib import import_module

        return import_module("sklearn.metrics")
    except ImportError:
        raise UsageError("roc requires the scikit library, install with `pip install scikit-learn`") from None


_HERE = sys.modules[__name__]
_NAMES = (
    *("line", "scatter", "bar", "histogram", "line_series", "confusion_matrix", "pr_curve", "roc_curve"),
    *("plot_table", "CustomChart"),
)
plot = PartialModule("plot", **{name: getattr(_HERE, name) for name in _NAMES})
"""The module `wandb.plot`."""
