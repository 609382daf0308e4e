"""The gateway: one port for WebSocket, HTTP and SSE. docs/gateway.md specifies the protocol."""
