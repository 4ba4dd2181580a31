"""Prints how long a learner's matrix products take through each backend: a process of its own.

`python -m harness.matmul_probe` prints a JSON object of seconds by backend. What starts it need not
import torch.
"""

import json
import statistics
import time

import torch
from torch import nn

from sandbox.guest import numerics

BACKENDS = ("torch", "onednn")
ROUNDS = 15
REPETITIONS = 20
"""Of every layer, in each round."""
BATCH = 256
WIDTHS = ((23, 256), (256, 256))
"""Inputs and outputs of the layers of a critic on HalfCheetah."""


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    layers = [nn.Linear(*each) for each in WIDTHS]
    inputs = [torch.randn(BATCH, fan_in, requires_grad=True) for fan_in, _ in WIDTHS]
    times: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for _ in range(ROUNDS + 1):  # alternating, so that what else the machine does strikes both
        for backend in BACKENDS:
            numerics.install({"matmul": backend})
            began = time.perf_counter()
            for _ in range(REPETITIONS):
                for layer, batch in zip(layers, inputs, strict=True):
                    layer(batch).square().sum().backward()
            times[backend].append(time.perf_counter() - began)
    # The first round warms up. Medians: one round that was left in peace decides nothing.
    medians = {backend: statistics.median(rounds[1:]) for backend, rounds in times.items()}
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
