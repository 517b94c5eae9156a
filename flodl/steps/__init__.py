"""Shipped training steps: step(model, batch) -> scalar mean loss, batch as the data set collates it.

A step may have metrics(model, batch) -> {name: mean over the batch}, for evaluation; without it only the loss is told.
"""
