"""Checks of JSON data by schemas and patterns of users, in linear time."""
