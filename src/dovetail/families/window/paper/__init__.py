"""The nested-loop, hash and merge W-join, as printed."""
