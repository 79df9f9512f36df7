"""Colours and line styles of all figures; colours can be told apart with any colour vision."""

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#999999"
COLORS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", ":", "-.")
