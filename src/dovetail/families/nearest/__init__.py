"""The k nearest rows of another input."""
