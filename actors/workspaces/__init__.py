"""Folders that runs work in."""
