"""Runs and tool calls as actors. The facade `greenroom` re-exports the public names.

contract/ and engine/ are pure; run/ performs the effects of the engine; stores/, models/ and tools/ implement the
ports. Authors of a store or a model find the ports, `Store` and `Model`, in `greenroom.actors.abc` and conformance
suites in `greenroom.actors.testing`.
"""
