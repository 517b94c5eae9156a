"""Shipped models. Each is a plain torch.nn.Module that conf/model names by ``_target_``; it knows nothing of flodl.

Every constructor takes in_shape (channels, height, width) and num_classes, which the config takes from the data set.
Initialisation is torch's own: every rank adopts the parameters of one rank before the first window anyway.
"""
