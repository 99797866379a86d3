"""Plans to frames: one module per family."""
