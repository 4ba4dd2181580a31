"""Where untrusted code runs: the backends that confine it, the wire that it speaks, what it may import."""
