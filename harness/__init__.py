"""The host, trusted: it owns environments, clocks, returns and records, and parses no artefact."""
