"""The report of one evaluation: one document, as JSON for programs and Markdown for people."""
