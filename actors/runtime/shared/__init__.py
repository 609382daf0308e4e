"""The part of a runtime whose store other processes share."""
