"""The agent loops of other libraries: scripts that run in environments of their own and import nothing of Greenroom.

Each prints one line of JSON: seconds of CPU and wall of so many one-tool runs, and the version of its library.
"""
