"""Best-match joins: the pairs that no other pair beats."""
