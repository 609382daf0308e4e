"""Threads as readers see them: lists, stored pages, and the messages that people are shown."""
