"""Shipped models. Each is a plain torch.nn.Module that conf/model names by ``_target_``; it knows nothing of flodl.

Sizes that belong to the data are arguments which the config takes from the data set: in_shape (channels, height,
width) and num_classes for images, vocab_size and block_size for text. Initialisation is torch's own unless a module
says otherwise: every rank adopts the parameters of one rank before the first window anyway.
"""
