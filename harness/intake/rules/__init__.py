"""What a region may hold: the rules, the limited child that checks them, and the rulebook."""
