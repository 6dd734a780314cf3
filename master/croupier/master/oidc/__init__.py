"""Bearer tokens of an OpenID Connect provider. Needs the extra `oidc` (PyJWT)."""
