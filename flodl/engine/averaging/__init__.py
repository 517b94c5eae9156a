"""How replicas are combined: packing, groups' sums, and the rules of gradients, parameters and elastic rounds."""
