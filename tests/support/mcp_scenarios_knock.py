"""The program that the conformance suite of MCP starts as a client: tells a test the scenario, and waits for its end.

python mcp_scenarios_knock.py PORT URL
"""

import json
import os
import socket
import sys

_, port, url = sys.argv
scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
context = os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")
with socket.create_connection(("127.0.0.1", int(port))) as test:
    test.sendall(json.dumps({"scenario": scenario, "context": context, "url": url}).encode())
    sys.stdout.write(b"".join(iter(lambda: test.recv(65_536), b"")).decode())
