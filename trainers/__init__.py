"""Trainers for step-wise group rollouts: the GiGPO algorithm (NumPy only) and the TRL adapter."""
