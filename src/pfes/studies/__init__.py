"""A study: a grid of runs, and what it says."""

from pfes.studies.plan import PlannedRun as PlannedRun
from pfes.studies.plan import StudySpec as StudySpec
from pfes.studies.plan import plan_runs as plan_runs
from pfes.studies.plan import read_study as read_study
