"""The partitionings of the Prefap paper, as printed: what only algorithm='prefap' and its rivals need."""
