"""The chat protocol of the AI SDK, versions 6 and 7."""
