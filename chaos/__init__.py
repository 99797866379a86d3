"""Streams under fire: processes killed at random while every family of joins runs, and runs that last for hours."""
