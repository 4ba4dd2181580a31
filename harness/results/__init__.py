"""From run records to what people read: scores, reports and leaderboards."""
