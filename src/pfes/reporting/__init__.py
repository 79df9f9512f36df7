"""Reports of runs and studies: tables, comparisons, curves, figures and pages."""
