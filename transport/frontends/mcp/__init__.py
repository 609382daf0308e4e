"""The Model Context Protocol: agents as tools, questions of runs as elicitations."""
