"""A Keras model, recorded by one callback."""

import keras
import numpy

from stepscope.integrations.keras import StepscopeCallback


def main(epochs: int = 2) -> None:
    """Fit a line: three batches an epoch, and a validation."""
    inputs = numpy.random.default_rng(0).normal(size=(12, 4)).astype("float32")
    wanted = inputs.sum(1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    recording = StepscopeCallback(project="examples", name="keras")
    model.fit(
        inputs, wanted, batch_size=4, epochs=epochs, validation_data=(inputs, wanted), verbose=0, callbacks=[recording]
    )


if __name__ == "__main__":
    main()
