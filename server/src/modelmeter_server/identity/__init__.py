"""Who calls: bearer tokens, JWTs and client certificates, each of which stands for a tenant. Knows no gRPC."""
