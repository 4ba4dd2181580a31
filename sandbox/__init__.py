"""Where untrusted code runs: backends that confine it, the wire it speaks, what it may import."""
