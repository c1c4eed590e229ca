"""The model of the service: a Ray actor that trains one number."""

from typing import Any

from stepscope.integrations.ray import carried
from stepscope.training.service import get_tracer

tracer = get_tracer("tuft.hf_training_model")


@carried
class Model:
    """Learns the mean of what it is shown."""

    def __init__(self, base_model: str, lora_rank: int) -> None:
        self.base_model = base_model
        self.lora_rank = lora_rank
        self.weight = 0.0
        self.gradient = 0.0

    def forward_backward(self, data: list[float], backward: bool = True) -> dict[str, Any]:
        """Give the loss, and keep the gradient."""
        with tracer.start_as_current_span("hf_model.forward_backward") as span:
            span.set_attribute("tuft.backward", backward)
            if not data:
                raise ValueError("no data")
            mean = sum(data) / len(data)
            if backward:
                self.gradient = 2 * (self.weight - mean)
            return {"loss": (self.weight - mean) ** 2, "tokens": len(data)}

    def optim_step(self, learning_rate: float) -> dict[str, Any]:
        """Go against the gradient."""
        with tracer.start_as_current_span("hf_model.optim_step"):
            self.weight -= learning_rate * self.gradient
            return {"weight": self.weight}

    def save_state(self) -> bytes:
        """The whole model."""
        with tracer.start_as_current_span("hf_model.save_state"):
            return repr((self.base_model, self.lora_rank, self.weight)).encode()

    def sample(self, count: int) -> list[float]:
        """Say what was learned."""
        with tracer.start_as_current_span("hf_model.sample"):
            return [self.weight] * count
