"""The road to clients: the command line, and with the next releases the gateway, its client and the console."""
