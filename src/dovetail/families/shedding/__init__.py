"""Load shedding: window joins that keep up when too much arrives."""
