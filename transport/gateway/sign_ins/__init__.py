"""Who sends a request: functions of the program, files of tokens, proxies, and the watch over open connections."""
