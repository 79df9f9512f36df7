"""What a search had selected by earlier evaluations, so that it can be tested as it was then."""

from dataclasses import asdict, dataclass, field
from typing import Any

from pfes.contract import Floats
from pfes.searches.loop import Selection
from pfes.searches.validation import Validation


@dataclass(frozen=True)
class EarlierPrompt:
    """What a run would have returned, had it ended after `at` evaluations."""

    at: int
    selection: Selection
    prompt: Floats  # (length, width)


@dataclass
class EarlierSelections:
    """Keeps the selection as it is at each of some numbers of evaluations."""

    at: tuple[int, ...]
    before: int  # evaluations spent before the search
    kept: dict[int, Selection] = field(default_factory=dict)

    def see(self, evaluations: int, selection: Selection | None) -> None:
        """Take note of what is selected after so many evaluations of the search."""
        for at in self.at:
            if selection is not None and self.before + evaluations <= at:
                self.kept[at] = selection

    def state(self) -> dict[str, Any]:
        """Return all that `load_state` needs to continue."""
        return {
            str(at): {
                "solution": selection.solution,
                "validation": asdict(selection.validation),
                "evaluations": selection.evaluations,
            }
            for at, selection in self.kept.items()
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned."""
        for at, kept in state.items():
            validation = Validation(**kept["validation"])
            self.kept[int(at)] = Selection(kept["solution"], validation, kept["evaluations"])
