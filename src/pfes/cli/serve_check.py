"""`pfes serve-check`: check that a server is ready for a search."""

from typing import TYPE_CHECKING, Annotated

import typer

from pfes.contract import Interface, Written
from pfes.errors import PfesError, SettingError

if TYPE_CHECKING:
    from pfes.models.text.text_model import TextModel

TEXTS = 8  # of a task, looked at for its words
HOURS = 16  # requests to measure the speed with


def serve_check(
    url: Annotated[
        str,
        typer.Argument(
            help="such as http://HOST:PORT/v1; comma-separated if several; openai:URL takes text"
        ),
    ],
    tokenizer: Annotated[
        str | None,
        typer.Option(help="folder or Hub name of the model's tokenizer and input embedding"),
    ] = None,
    served_name: Annotated[
        str | None, typer.Option(help="the model's name on the server [its only model]")
    ] = None,
    interface: Annotated[
        Interface | None,
        typer.Option(help="of an openai: server [the first that works]"),
    ] = None,
    key_variable: Annotated[
        str | None, typer.Option(help="environment variable with the key of an openai: server")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="see whether an openai: server lists this task's words")
    ] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="run code that comes with the model")
    ] = False,
) -> None:
    """Check all that a search needs of a server; say what to change when starting it."""
    from pfes.config import SERVED, TEXT_ONLY, make_config, takes_only_text
    from pfes.models.served.served_model import ServedModel
    from pfes.models.text.text_model import TextModel

    if takes_only_text(url):
        make_config(model=url, task="", key_variable=key_variable)  # refuses a key in either

        def connect(kind: Interface | None) -> TextModel:
            return TextModel(
                url.removeprefix(TEXT_ONLY), served_name, tokenizer, kind,
                key_variable=key_variable, trust_remote_code=trust_remote_code,
            )  # fmt: skip

        model = connect(interface)
        _check_text(model, task)
        if interface is None and model.interface == "completions":
            _check_chat(connect("chat"))
        print(f"ready: {model.sent} to find this out")
        return
    for name, value in (("interface", interface), ("key_variable", key_variable), ("task", task)):
        if value is not None:
            raise SettingError(name, "this is for openai:URL: leave it out")
    served = ServedModel(
        url.removeprefix(SERVED), served_name, tokenizer, trust_remote_code=trust_remote_code
    )
    for check in served.checks():
        print(f"{check.name}: {check.seen}")
    print("ready for pfes search")


def _check_text(model: "TextModel", task: str | None) -> None:
    for check in model.checks(anew=True):
        print(f"{check.name}: {check.seen}")
    if task is not None:
        _check_words(model, task)
    hours = [f"It is {hour} o'clock in the" for hour in range(HOURS)]
    asked = [model.offer.question("", Written(hour, ("Go on.", hour))) for hour in hours]
    speed = model.service.a_second(asked)
    print(f"speed: {speed:.1f} requests a second, {model.service.pace.at_once} at once")


def _check_chat(model: "TextModel") -> None:
    """Say whether a server that completes text also chats."""
    try:
        list(model.checks(anew=True))
    except PfesError:
        print("chat: no")
    else:
        print(f"chat: also, with the {model.offer.listed} likeliest words (--interface chat)")


def _check_words(model: "TextModel", name: str) -> None:
    """Say for how many of a few texts each word is listed."""
    import numpy as np

    from pfes.config import make_config
    from pfes.searches.encoded import encode_for
    from pfes.tasks.loader import load_run_task

    task = load_run_task(make_config(model=model.name, task=name, shots=TEXTS))
    batch = encode_for(model, task.spec, task.train[:TEXTS], 0)
    listed = model.are_listed(np.empty((0, model.width), dtype=np.float32), batch)
    for word, there in zip(task.spec.verbalizers.values(), listed.T, strict=True):
        print(f"word {word.strip()!r}: answered for {there.sum()} of {len(there)} texts")
