"""What the machine gives: files, memory, time, downloads."""
