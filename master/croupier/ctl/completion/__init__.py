"""Completion of `croupier` in bash, zsh and fish."""
