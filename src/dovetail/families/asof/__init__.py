"""The as-of join: for every row of one input, the row of the other that was current at its time."""
