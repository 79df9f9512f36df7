"""Methods that search tokens, or nothing at all: what continuous search is compared with."""
