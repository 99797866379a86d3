"""Input of strangers, made to break things: job files, conditions, statements, progress files, checkpoint headers."""
