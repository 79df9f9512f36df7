"""A found prompt as files that other programs take."""

from pfes.exports.write import Format as Format
from pfes.exports.write import export as export
