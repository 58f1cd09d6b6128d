"""One call from request to outcome: lookup, checks, deadline, bill, record."""
