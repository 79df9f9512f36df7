"""`pfes serve-check`: check that a vLLM server is ready for a search."""

from typing import Annotated

import typer


def serve_check(
    url: Annotated[
        str, typer.Argument(help="such as http://HOST:PORT/v1; comma-separated if several")
    ],
    tokenizer: Annotated[
        str, typer.Option(help="folder or Hub name of the model's tokenizer and input embedding")
    ],
    served_name: Annotated[
        str | None, typer.Option(help="the model's name on the server [its only model]")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
) -> None:
    """Check all that a search needs of a server; say what to change when starting it."""
    from pfes.config import SERVED
    from pfes.models.served.served_model import ServedModel

    model = ServedModel(
        url.removeprefix(SERVED), served_name, tokenizer, trust_remote_code=trust_remote_code
    )
    for check in model.checks():
        print(f"{check.name}: {check.seen}")
    print("ready for pfes search")
