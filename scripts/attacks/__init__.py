"""Families of attacks, each a function that takes a dice and raises where something that must hold does not."""
