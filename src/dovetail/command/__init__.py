"""The command `dovetail`: its arguments, and what each of its commands does and shows."""
