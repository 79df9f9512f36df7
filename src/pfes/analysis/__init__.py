"""Why searching the full space works: the paper's analyses, each as one function."""
