"""Intake: what was handed in becomes an accepted source, or every broken rule with its line."""
