"""The laboratory: experiments in virtual time, reference solvers, golden vectors and traces."""
