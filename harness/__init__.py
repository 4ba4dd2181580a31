"""The host: trusted code. It owns environments, clocks, returns and records, and parses nothing of a guest's."""
