"""Who acts: runs and tool calls. The facade `greenroom` re-exports what people use.

contract/ and engine/ are pure; run/ is the shell that performs what the engine decides; stores/, models/ and tools/ are
the ports' implementations. Authors of a store or a model find the ports, `Store` and `Model`, in `greenroom.actors.abc`
and the suites to test them with in `greenroom.actors.testing`.
"""
