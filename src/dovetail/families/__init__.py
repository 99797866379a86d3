"""The families of joins, one folder each, all of the same inner shape."""
