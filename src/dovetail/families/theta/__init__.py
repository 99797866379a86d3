"""Theta joins: inequalities, bands and equalities, after Prefap and beyond it."""
