"""An elastic script that stops early, at step 3 (of 10), in the way its argument names."""

import sys
import time

import torch

import springtide

HOW, LAST = sys.argv[1], 3
run = springtide.init(logical_workers=4, seed=3)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
features = torch.randn(80, 6)
dataset = torch.utils.data.TensorDataset(features, features.sum(1, keepdim=True))
model, optimizer, loader = run.prepare(model, optimizer, dataset, batch_size=4)  # 5 steps per epoch
for _ in run.epochs(2):
    for step in loader:
        is_last = step.number == LAST
        if HOW == "all, and leave" and is_last:
            run.stop("enough")
            break
        if HOW == "left, then all" and is_last:
            break
        if HOW == "first process" and is_last and run.is_main:
            run.stop("late")
        if HOW == "left in the last epoch" and step.number == 5 + LAST:
            if run.is_main:
                time.sleep(2)  # as one that saves a file while the others are done
            break
        for walk in range(1 + (HOW == "second walk")):
            for x, y in step:
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                if is_last and walk == 1 and step.worker.rank == 0:
                    run.stop("in a turn")
            optimizer.step()
            optimizer.zero_grad()
    if HOW == "left, then all":
        run.stop("converged")
