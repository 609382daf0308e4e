"""The table of all HTTP operations, and `serve`."""
