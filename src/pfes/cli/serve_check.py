"""`pfes serve-check`: is a vLLM server ready for a search?"""

from typing import Annotated

import typer


def serve_check(
    url: Annotated[str, typer.Argument(help="such as http://HOST:PORT/v1; several with commas")],
    tokenizer: Annotated[
        str, typer.Option(help="folder or Hub name of the model's tokenizer and input embedding")
    ],
    served_name: Annotated[
        str | None, typer.Option(help="what the server calls its model [the only one it has]")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
) -> None:
    """Go through all that a search needs of a server; say what to start differently."""
    from pfes.models.client import PREFIX
    from pfes.models.served import ServedModel

    model = ServedModel(
        url.removeprefix(PREFIX), served_name, tokenizer, trust_remote_code=trust_remote_code
    )
    for check in model.checks():
        print(f"{check.name}: {check.found}")
    print("ready for pfes search")
