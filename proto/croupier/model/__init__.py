"""Values that all packages share. Pure: only the standard library and RE2 are imported."""
