"""Solvers: policies computed without the engine.

Rule: nothing here imports `croupier.master`, so that agreement with the engine means something.
"""
