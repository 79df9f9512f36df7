"""Language models behind one contract: log-probabilities of the verbalizer words."""
