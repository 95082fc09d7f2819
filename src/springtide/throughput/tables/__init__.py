"""Measured speeds as files: points, profiles and the published tables, read and checked row by row."""
