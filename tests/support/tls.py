"""A certificate for 127.0.0.1 that no authority has signed, good for a hundred years, and both sides that use it."""

import ssl
from pathlib import Path

KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgutL5A/owC8qM29+z
Wsq6n6QTVGY7PvYYaI0fkn1KNlWhRANCAARYBabfHkutkjtq0k4QazGyunI6zHMD
jE5u6nBESG0B6XjueGjoab+vsNK6xTHrkK20FLfQ17LDmqa6NO5cMHWq
-----END PRIVATE KEY-----
"""
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBkTCCATagAwIBAgIUVTnjyudSbFQmZR1CNNEqkd7UedwwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJMTI3LjAuMC4xMCAXDTI2MTEyMjA1MjAyM1oYDzIxMjYxMDI5
MDUyMDIzWjAUMRIwEAYDVQQDDAkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAARYBabfHkutkjtq0k4QazGyunI6zHMDjE5u6nBESG0B6XjueGjoab+v
sNK6xTHrkK20FLfQ17LDmqa6NO5cMHWqo2QwYjAdBgNVHQ4EFgQUv4zfY2KbQjm0
jLlsVz2wEHbqM6IwHwYDVR0jBBgwFoAUv4zfY2KbQjm0jLlsVz2wEHbqM6IwDwYD
VR0RBAgwBocEfwAAATAPBgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYC
IQCudWMXmraWBpGI5llDyaTsszAj5KOE2x6WaE3s+vxKewIhALMeqL13fCPMOsR+
aj9C7BoTlsw6RHpkljwckZkek60q
-----END CERTIFICATE-----
"""


def contexts(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a server, and for a client that trusts it."""
    both = folder / "both.pem"
    both.write_text(KEY + CERTIFICATE)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(both)
    return server, ssl.create_default_context(cadata=CERTIFICATE)
