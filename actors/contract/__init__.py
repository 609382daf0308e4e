"""The contract: frozen data shared by every part of Greenroom. Pure: no trio, no clock, no randomness."""
