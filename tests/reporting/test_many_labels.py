"""The page and the terminal's table of a run with many labels, and of one that kept its start."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pfes.cli.results import show_result
from pfes.contract import Batch, Floats
from pfes.reporting.pages.run_page import run_page
from pfes.runs.result import Result
from pfes.runs.saved import SavedRun
from tests import small_runs
from tests.reporting.conftest import Opened
from tests.stand_in import StandIn

LETTERS = "abcdefghijklmnopqrst"
LABELS = [f"internationalization <of> product {letter}" for letter in LETTERS]
TASK = """\
name: products
dataset: {{file: products.csv}}
label: product
templates: {{causal: "{{text}}\\nProduct:"}}
verbalizers:
{words}
"""


class ManyWords(StandIn):
    """Answers with one of many words, more often right than wrong."""

    def logprobs(self, prompts: Floats, batch: Batch) -> Floats:
        right = np.array(batch.labels)[:, None] == np.arange(len(LABELS))
        noise = np.random.default_rng(len(batch)).standard_normal(right.shape)
        tilt = prompts.mean(axis=(1, 2)) if prompts.shape[1] else np.zeros(len(prompts))
        scores = 2 * right + noise + tilt[:, None, None] * right
        scores -= np.logaddexp.reduce(scores, axis=-1, keepdims=True)
        return (scores - 0.1).astype(np.float32)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("products")
    words = [f'  "{label}": {letter}' for label, letter in zip(LABELS, LETTERS, strict=True)]
    file = folder / "products.yaml"
    file.write_text(TASK.format(words="\n".join(words)))
    rows = [f"a long text {'on and on ' * 60} {i},{LABELS[i % 20]}" for i in range(800)]
    (folder / "products.csv").write_text("text,product\n" + "\n".join(rows) + "\n")
    out = folder / "run"
    small_runs.finish(file, out, model=ManyWords(), test_limit=None, sigma0=2.0)
    return out


@pytest.mark.parametrize("width", [1280, 500])
def test_the_page_of_many_labels_fits(
    run: Path, width: int, open_page: Callable[..., Opened]
) -> None:
    file = run / "report.html"
    file.write_text(run_page(SavedRun(run)))
    true = [answer["label"] for answer in SavedRun(run).answers]
    examples = [true.count(label) for label in LABELS]
    page = open_page(file, viewport={"width": width, "height": 900}).page
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for title in ("Template alone", "Found prompt"):
        matrix = page.get_by_role("table", name=f"{title}: true labels down")
        counts = [int(text) for text in matrix.locator("td").all_inner_texts()]
        assert np.array(counts).reshape(20, 20).sum(axis=1).tolist() == examples
        names = matrix.locator("thead th").all_inner_texts()
        assert [name.split(":")[0] for name in names] == ["true label", *LABELS]
        box = matrix.bounding_box()
        assert box is not None
        assert box["width"] < 1184  # fits on a usual screen
        if width == 500:  # the names of the rows stay where they are
            page.get_by_role("region", name=f"{title}: true").evaluate("e => e.scrollLeft = 300")
            head = matrix.locator("tbody th").first.bounding_box()
            assert head is not None
            assert head["x"] == pytest.approx(16, abs=1)


def test_the_page_counts_label_by_label(run: Path, open_page: Callable[..., Opened]) -> None:
    file = run / "report.html"
    file.write_text(run_page(SavedRun(run)))
    table = open_page(file).page.get_by_role("table", name="Label by label")
    rows = [row.locator("> *").all_inner_texts() for row in table.locator("tbody tr").all()]
    assert [row[0] for row in rows] == [f"{a}: {b}" for a, b in zip(LABELS, LETTERS, strict=True)]
    right = sum(int(row[1]) * float(row[3]) for row in rows)
    assert right / 160 == pytest.approx(SavedRun(run).result.test, abs=1e-3)


def test_many_sentences_that_changed_scroll(run: Path, open_page: Callable[..., Opened]) -> None:
    saved = SavedRun(run)
    answers = saved.answers
    for answer in answers:
        answer["found"] = dict(zip(answer["found"], np.roll(range(20), 3).tolist(), strict=True))
    saved.answers = answers
    file = run / "report.html"
    file.write_text(run_page(saved))
    region = open_page(file).page.get_by_role("region", name="Answers that changed")
    assert region.locator("tbody tr").count() > 40
    box = region.bounding_box()
    assert box is not None
    assert box["height"] < 900
    texts = region.locator("td.text").all_inner_texts()
    assert all(len(text) < 410 and text.endswith("…") for text in texts)


def read_with_words(result: Result, labels: int) -> Result:
    """Return a result whose reading has telling words for so many labels."""
    names = [f"label {i}" for i in range(labels)]
    reading = {
        "rung": "words", "slope": 1.0, "shares": {"words 1": 1.0}, "loss": 0.5, "plain_loss": 0.6,
        "cross_validation": {"words 1": 0.5}, "offsets": dict.fromkeys(names, 0.25),
        "telling": {name: [" yes", " <i>"] for name in names},
    }  # fmt: skip
    return result.model_copy(update={"reading": reading})


@pytest.mark.parametrize("labels", [3, 10, 11, 20])
def test_the_terminal_names_the_words_of_ten_labels(
    run: Path, labels: int, capsys: pytest.CaptureFixture[str]
) -> None:
    show_result(read_with_words(SavedRun(run).result, labels), run, as_json=False)
    said = capsys.readouterr().out
    assert said.count("'yes'") == min(labels, 10)
    more = {11: "… and 1 more label:", 20: "… and 10 more labels:"}
    assert ("… and" in said) == (labels in more)
    assert more.get(labels, "") in said


def test_the_page_has_offset_and_words_of_every_label(run: Path) -> None:
    saved = SavedRun(run)
    saved.result = read_with_words(saved.result, 20)
    page = run_page(saved)
    assert page.count("+0.250") == 20
    assert page.count("&#39; &lt;i&gt;&#39;") == 20
    assert "offsets" not in page


def test_the_page_says_that_the_start_is_kept(run: Path) -> None:
    saved = SavedRun(run)
    sentence = "The search found nothing that validates better than its start"
    for selected, said in ((0, True), (12, False)):
        saved.result = saved.result.model_copy(update={"selected_at": selected})
        assert (sentence in run_page(saved)) == said
