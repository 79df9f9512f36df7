"""The paper's analyses of why searching the full space works, one function each."""
