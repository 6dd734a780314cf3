"""Access to the master: authentication, permissions, rates and the audit log."""
