"""The Agent Client Protocol, version 1, as an agent: an editor is the client, and a gateway has the runs."""
