"""Shipped data sets. Each is a function that conf/dataset names by ``_target_`` and that returns `Splits`.

image_shape and num_classes are arguments, so that a model's config can take them from the data set's; a function
checks them against its data. Everything is the same on every host: numbers come from numpy's frozen legacy stream,
never from torch's, which differs between releases.
"""
