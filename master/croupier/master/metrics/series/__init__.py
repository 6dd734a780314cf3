"""Metrics of single roles and frameworks: a bounded number of each, and the rest as `other`."""
