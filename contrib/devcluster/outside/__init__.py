"""What runs on the host: standard library only, so that it starts quickly and needs nothing installed."""
