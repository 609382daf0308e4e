"""What people see in a terminal: a run as lines, a question with its answer, and the one module that writes."""
