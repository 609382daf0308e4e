"""Codecs of providers, without I/O: a request as a value to JSON, the bytes of a stream to the parts of an answer."""
