"""What work has cost: model requests, and the tokens that models reported."""

from msgspec import Struct
from pydantic_ai.messages import ModelResponse

from holdfast.runtime.steps.executor import StepExecutor


class Spent(Struct):
    """What was spent so far; what was restored from a checkpoint cost nothing."""

    iterations: int = 0
    tokens: int = 0

    def add(self, done: StepExecutor) -> None:
        """Count what the step *done* has cost."""
        self.iterations += done.iterations
        replies = (each for each in done.messages if isinstance(each, ModelResponse))
        self.tokens += sum(each.usage.input_tokens + each.usage.output_tokens for each in replies)
