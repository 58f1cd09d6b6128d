"""What the server says about itself while it runs."""
