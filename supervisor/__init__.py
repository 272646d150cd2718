"""Decides and owns: the pure core (session and its helpers) and the shell that performs its effects."""
