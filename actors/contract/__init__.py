"""The contract: frozen data that every part of Greenroom agrees on. Pure: no trio, no clock, no randomness."""
