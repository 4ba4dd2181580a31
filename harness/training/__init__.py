"""Submission source + environment + seed → one run, trained, exported and scored."""
