"""Keras and TensorFlow."""

from stepscope.diagnosis.vocabulary import Vocabulary

KERAS = Vocabulary(
    "keras",
    signs=frozenset(("epoch_loss", "epoch_learning_rate", "batch_loss")),
    own={
        "accuracy": ("sparse_categorical_accuracy", "categorical_accuracy", "binary_accuracy", "epoch_accuracy"),
        "lr": ("epoch_learning_rate",),
    },
)
