"""The run machine: (state, input, now) -> (state, commit, effects). Pure: no trio, no clock, no randomness."""
