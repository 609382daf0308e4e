"""The runtime: opening, the facade, readers, commands, the registry of runs, starting."""
