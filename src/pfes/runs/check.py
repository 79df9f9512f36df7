"""What can be checked of a run before its folder is made and its model is loaded."""

from collections.abc import Collection, Mapping

from pfes.config import ReadingName, RunConfig, is_served, takes_only_text
from pfes.errors import SettingError
from pfes.methods import (
    FEWEST_CANDIDATES,
    METHOD_SETTINGS,
    METHODS,
    Method,
    generation_size,
    get_method,
    no_gradients,
    settings_of,
)
from pfes.models.source import ModelSource, find_model
from pfes.optimizers.adam import RATES, Adam
from pfes.searches.beta_halving import check_budget
from pfes.searches.step_size import EVALUATIONS, is_auto
from pfes.tasks.prior import given_shares
from pfes.tasks.spec import read_spec

SERVED_SETTINGS = ("served_name", "tokenizer", "patience")  # only a served model takes these
TEXT_SETTINGS = (  # only a model that takes text alone
    "interface", "key_variable", "max_requests", "max_tokens", "price_per_million",
)  # fmt: skip
LOCAL_SETTINGS = (  # and only a local one these
    "device", "dtype", "search_dtype", "device_map", "max_batch_tokens", "batch_tokens", "threads",
    "engine", "workers", "gpus_per_worker",
)  # fmt: skip

LOADING_SETTINGS = (  # what only matters while a model is loaded
    "device", "dtype", "device_map", "max_batch_tokens", "threads", "engine", "workers",
    "gpus_per_worker", "trust_remote_code",
)  # fmt: skip

UNUSED: dict[ReadingName, tuple[str, ...]] = {  # by each kind of reading
    "plain": ("answer_words", "unlabelled", "prior"),
    "offset": ("answer_words",),
    "slope": ("answer_words",),
    "words": (),
    "auto": (),
}


def check_settings(config: RunConfig, given: Collection[str]) -> None:
    """Refuse settings that contradict each other, or that would be silently unused.

    `given` are the names of the settings that a user has set: only those can be unused.
    """
    method = get_method(config.method)
    given = {name for name in given if getattr(config, name) is not None}
    if not method.regularized and "beta" in given:
        if config.beta != 0:
            others = ", ".join(m.name for m in METHODS.values() if m.regularized)
            raise SettingError("beta", f"{method.name} has no regulariser; {others} do")
        given.remove("beta")  # no weight is what it has
    for name in sorted((METHOD_SETTINGS - set(settings_of(method))) & given):
        why = "does not search" if method.optimizer is None else "does not use it"
        if name == "batch_examples" and method.optimizer is not None:
            why = "compares values of different generations, which all need the same examples"
        raise SettingError(name, f"{method.name} {why}: leave this setting out")
    if method.shows_examples and config.demonstrations == 0:
        raise SettingError(
            "demonstrations", f"{method.name} shows at least 1 example of each label"
        )
    if method.optimizer and "draws" in given and not (config.demonstrations or _chooses(config)):
        message = "without examples in front there is nothing to draw: leave this setting out"
        raise SettingError("draws", message)
    for name in UNUSED[config.reading]:
        if name in given:
            message = f"--reading {config.reading} does not use it: leave this setting out"
            raise SettingError(name, message)
    text = takes_only_text(config.model)
    if text:
        check_takes_text(method, config.model)
        if config.placement != "prefix":
            message = "a model that takes only text has its prompt in front: leave this setting out"
            raise SettingError("placement", message)
    for name in () if text else TEXT_SETTINGS:
        if name in given:
            message = "this is for a model that takes text (--model openai:URL)"
            raise SettingError(name, f"{message}: leave this setting out")
    served = is_served(config.model)
    policy = {"device"} if method.optimizer == "rlprompt" else set()  # its model is local
    for name in LOCAL_SETTINGS if served else SERVED_SETTINGS:
        if name in given - policy:
            kind = "a local model" if served else "a served model (--model vllm:URL, openai:URL)"
            raise SettingError(name, f"this is for {kind}: leave this setting out")
    if method.needs_gradients and (served or config.engine != "serial"):
        where = "a served model" if served else "a model in Ray workers"
        raise no_gradients(method, where)
    if "report_at" in given and max(config.report_at, default=0) >= config.budget:
        message = f"{max(config.report_at)} is not before the end, {config.budget} evaluations"
        raise SettingError("report_at", message)
    if method.optimizer is not None:
        _check_sizes(config, method)


def check_takes_text(method: Method, model: str) -> None:
    """Refuse a method whose prompts are no text, for a model that takes nothing else."""
    if method.space in ("full", "subspace"):
        able = ", ".join(m.name for m in METHODS.values() if m.space in (None, "tokens"))
        raise SettingError(
            "method", f"{method.name} moves embeddings, and {model} takes only text; {able} can"
        )


def check_loading_settings(given: Mapping[str, object]) -> None:
    """Refuse settings of loading where the model is loaded already."""
    for name in (*LOADING_SETTINGS, *SERVED_SETTINGS, *TEXT_SETTINGS):
        if given.get(name) is not None:
            raise SettingError(name, "the model is loaded already: set this when you load it")


def _chooses(config: RunConfig) -> bool:
    """Say whether a search may try examples in front."""
    return config.init == "auto" and config.demonstrations is None


def _check_sizes(config: RunConfig, method: Method) -> None:
    assert method.optimizer is not None
    fewest = FEWEST_CANDIDATES.get(method.optimizer, 1)
    if config.population < fewest:
        message = f"{method.name} needs at least {fewest}, not {config.population}"
        raise SettingError("population", message)
    if method.optimizer == "saes" and (config.parents or 1) > config.population:
        raise SettingError(
            "parents", f"{config.parents} is more than the population, {config.population}"
        )
    if config.sigma0 == "auto" and method.space == "tokens":
        raise SettingError("sigma0", f"auto is a step size, and {method.name} has a learning rate")
    if is_auto(config.sigma0, method) and config.budget <= EVALUATIONS:
        message = f"--sigma0 auto takes {EVALUATIONS} evaluations, and the search needs more"
        raise SettingError("budget", message)
    if method.needs_gradients:
        least = Adam.cost * len(RATES) + (EVALUATIONS if is_auto(config.sigma0, method) else 0)
        if config.budget < least:
            message = f"{method.name} tries {len(RATES)} learning rates and needs at least {least}"
            raise SettingError("budget", f"{message}: a step counts as {Adam.cost} evaluations")
    if method.space == "subspace" and round(config.intrinsic_dimension) < 1:
        raise SettingError("intrinsic_dimension", f"{method.name} needs at least 1")
    if config.beta == "auto" and method.regularized:
        check_budget(config.budget, generation_size(method, config.population))


def check_names(config: RunConfig, *, model: bool = True, task: bool = True) -> ModelSource | None:
    """Find a mistyped method, task or model; return the source of a local model.

    Nothing is downloaded. A model or task that is loaded already has no name to check.
    """
    method = get_method(config.method)
    if task:
        spec, _ = read_spec(config.task)
        given_shares(config.prior, spec.labels)
    if method.optimizer == "rlprompt":
        try:
            find_model(config.policy_model, config.trust_remote_code)
        except SettingError as error:
            raise SettingError("policy_model", error.message) from None
    if not model or is_served(config.model):
        return None
    return find_model(config.model, config.trust_remote_code)
