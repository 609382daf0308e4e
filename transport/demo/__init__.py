"""The example of `greenroom demo`: an agent that takes a census of a folder and asks before it writes its report."""
