"""The terminal: a run as lines, prompts and their answers, and the one module that writes."""
