"""The data that offline tasks learn from: made here or fetched, checked, laid out for learners."""
