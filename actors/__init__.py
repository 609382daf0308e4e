"""Who acts: runs and tool calls. The facade `greenroom` re-exports what people use; see `abc.py` for extension points.

contract/ and engine/ are pure; run/ is the shell that performs what the engine decides; stores/, models/ and tools/ are
the ports' implementations; testing/ is public.
"""
