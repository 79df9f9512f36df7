"""`pfes cache`: the answers of services that are kept on disk."""

from typing import Annotated

import typer


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="forget all answers")] = False,
) -> None:
    """Show how many answers of openai: servers are kept, and where; nothing is asked twice."""
    from pfes.models.text.answer_store import AnswerStore, largest_bytes

    store = AnswerStore()
    if clear:
        store.clear()
    print(
        f"{store.count:,} answers, {store.bytes / 1e6:.1f} MB of at most "
        f"{largest_bytes() / 1e6:g}, in {store.path}"
    )
    store.close()
