"""The TRL adapter. Its ``advantages`` need NumPy only, its trainers the extra ``train``."""
