"""A statement's text to frozen values that point into it."""
