"""Rows while they travel: columns as codes, segments, structs and cells."""
