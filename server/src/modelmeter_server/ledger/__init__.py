"""The ledger: what was held, sent, told and paid, and the journal that answers a repetition."""
