"""Priors: how often each label is expected, by name or written out."""

from pathlib import Path

import pytest

from pfes.errors import SettingError
from pfes.tasks import Task, load_task
from pfes.tasks.prior import expected_shares, given_shares

LABELS = ("bad", "good", "a=b")


def test_shares_that_are_written_out() -> None:
    assert given_shares("bad=0.5, good=0.3,a=b=0.2", LABELS) == pytest.approx((0.5, 0.3, 0.2))
    assert given_shares("uniform", LABELS) is None


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("nonsense", "'nonsense': write uniform, train or LABEL=SHARE,…; the labels are bad, good"),
        ("bad=0.5,ugly=0.5", "'ugly=0.5'"),
        ("bad=half", "'half' is not a number"),
        ("bad=0.5,good=0.5", "no share for label 'a=b'"),
        ("bad=0.5,good=0.3,a=b=0.1", "not to 0.9"),
        ("bad=1.5,good=-0.7,a=b=0.2", "shares are positive"),
        ("bad=nan,good=0.3,a=b=0.2", "shares are positive"),
    ],
)
def test_a_wrong_prior_is_one_line(prior: str, message: str) -> None:
    with pytest.raises(SettingError) as caught:
        given_shares(prior, LABELS)
    assert str(caught.value).startswith("prior: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_shares_of_the_data(task_file: Path) -> None:
    texts = [f"text {i}" for i in range(40)]
    labels = ["rare" if i % 4 == 0 else "common" for i in range(40)]
    words = {"common": "great", "rare": "bad"}
    settings = {"template": "{text} was", "verbalizers": words, "shots": 2, "holdout": 0.0}
    task = Task.from_examples(texts, labels, **settings)
    assert expected_shares("train", task) == (0.75, 0.25)
    assert expected_shares("uniform", task) == (0.5, 0.5)
    assert sum(load_task(task_file, shots=4).shares) == pytest.approx(1)
    unknown = Task.from_json({k: v for k, v in task.to_json().items() if k != "shares"})
    assert unknown == task
    with pytest.raises(SettingError, match="prior: it is not known"):
        expected_shares("train", unknown)
