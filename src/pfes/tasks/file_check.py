"""What a data file is, where it is not the text that its name promises."""

from pathlib import Path

from pfes.errors import PfesError

LOOKED_AT = 4096  # bytes at a file's beginning
SPREADSHEETS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")
SAVE_AS = "save it as CSV in UTF-8"
BEGINNINGS = {  # of files that are no text, and what to do with them
    b"PK\x03\x04": f"it is a spreadsheet or an archive; open it and {SAVE_AS}",
    b"\xd0\xcf\x11\xe0": f"it is a spreadsheet; open it and {SAVE_AS}",
    b"\x1f\x8b": "it is compressed; unpack it first",
    b"PAR1": "it is a Parquet file; let its name end in .parquet",
}
UTF_16 = "it is text in UTF-16; save it as UTF-8"
NO_TEXT = f"it is no text; if a program can open it, {SAVE_AS}"
NO_UTF_8 = "it is no text in UTF-8; if it is text, save it as UTF-8"
SEPARATORS = {  # how each is called, and what to do
    ";": "';': save it with commas",
    "\t": "tabs: let the file's name end in .tsv",
    "|": "'|': save it with commas",
    ",": "commas: let the file's name end in .csv",
}


def check_is_text(path: Path) -> None:
    """Refuse a file that is another kind than text in UTF-8, as far as its beginning shows."""
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
    why = _why_no_text(start)
    if why is not None:
        raise PfesError(f"data file {path} cannot be read: {why}")


def _why_no_text(start: bytes) -> str | None:
    for beginning, why in BEGINNINGS.items():
        if start.startswith(beginning):
            return why
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return UTF_16
    # half of the bytes of most texts in UTF-16 are zero, either every first or every second
    if len(start) > 3 and max(start[i::2].count(0) * 2 - start.count(0) for i in (0, 1)) > (
        len(start) // 4
    ):
        return UTF_16
    # some control characters may be in a text, but it does not consist of them
    control = sum(byte < 32 and byte not in b"\t\n\r" for byte in start)
    return NO_TEXT if control > len(start) / 3 else None


def other_separator(header: str, delimiter: str = ",") -> str | None:
    """Say what seems to separate the columns, if a file's first line has no `delimiter`."""
    if delimiter in header:
        return None
    found = (said for separator, said in SEPARATORS.items() if separator in header)
    said = next(found, None)
    return None if said is None else f"its columns seem to be separated by {said}"
