"""Shipped data sets. Each is a function that conf/dataset names by ``_target_`` and that returns `Splits`.

What a model wants to know of its data (image_shape, num_classes, vocab_size, block_size) is an argument, so that a
model's config can take it from the data set's; a function checks it against its data. Everything is the same on every
host: numbers come from numpy's frozen legacy stream, never from torch's, which differs between releases.
"""
