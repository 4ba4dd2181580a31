"""How submissions are handed in: each form from text to the region that it proposes."""
