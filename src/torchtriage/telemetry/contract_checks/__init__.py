"""Contracts of one subject each: what must hold in any training."""
