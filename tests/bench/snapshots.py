"""What a snapshot of 100 MB per second costs a GPU's training: `python -m tests.bench.snapshots`.

One process, one GPU, resnet-like work; the same steps with and without a snapshot to pinned host memory every second,
in turns. Prints the median quotient of the steps per second.
"""

from __future__ import annotations

import time
from statistics import median

import torch
from torch import nn

from flodl.engine.averaging.parameters import ParameterRule

SECONDS = 5.0
WIDTH = 5000  # 5000 x 5000 float32 parameters: 100 MB


def main() -> None:
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rule = ParameterRule(model, optimizer, device=device, flat_device=torch.device("cpu"))
    inputs, targets = torch.randn(4096, WIDTH, device=device), torch.randint(10, (4096,), device=device)

    def steps_per_second(*, snapshots: bool) -> float:
        torch.cuda.synchronize()
        began = last = time.perf_counter()
        steps = 0
        while (now := time.perf_counter()) - began < SECONDS:
            if snapshots and now - last >= 1.0:
                rule.snapshot()
                last = now
            nn.functional.cross_entropy(model(inputs), targets).backward()
            rule.step(len(inputs))
            steps += 1
            if steps % 20 == 0:
                torch.cuda.synchronize()  # or the queue would hide what a snapshot costs
        torch.cuda.synchronize()
        return steps / (time.perf_counter() - began)

    steps_per_second(snapshots=True)
    quotients = [steps_per_second(snapshots=True) / steps_per_second(snapshots=False) for _ in range(3)]
    print(f"with / without snapshots: median {median(quotients):.4f} of {', '.join(f'{q:.4f}' for q in quotients)}")


if __name__ == "__main__":
    main()
