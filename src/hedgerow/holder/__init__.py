"""The data holder's side: exact counts, noise, and the ledger."""
