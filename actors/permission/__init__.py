"""Permission: rules that decide which calls run, which ask a person, and which are refused."""
