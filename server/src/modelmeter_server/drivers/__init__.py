"""What talks to providers: the shared HTTP transport, and one package for each provider."""
