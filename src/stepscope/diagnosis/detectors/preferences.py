"""Preference optimisation (DPO): margins that explode, chosen answers that become unlikely, pairs that are too easy."""

from statistics import median

from stepscope.diagnosis.detector import RunState, judged_once
from stepscope.diagnosis.finding import Finding, Kind, number
from stepscope.diagnosis.series_history import Series, trend

MARGIN = Kind(
    "margin_explosion",
    "WARN",
    "the policy runs away from its reference: a learning rate that is too high, or a beta that is too low",
    "Lower the learning rate or raise beta; stop earlier. Healthy margins are between 1 and 10.",
    explains=("chosen_falls", "easy_pairs", "spike", "vanishing_gradients"),
    lasts=True,
)
CHOSEN = Kind(
    "chosen_falls",
    "WARN",
    "the loss pushes both answers down, the rejected one faster: pairs are nearly alike, or the rate is too high",
    "Add a likelihood term for the chosen answer, raise beta, or drop pairs that differ in a few tokens only.",
    explains=("easy_pairs",),
    lasts=True,
)
EASY = Kind(
    "easy_pairs",
    "WARN",
    "chosen and rejected answers differ in something trivial (length, format, source), or the test set leaked",
    "Look at what tells the pairs apart; compare their lengths.",
)
ROW = 10
FALLEN, NATS = 0.3, 8.0
ALL, SOON = 0.995, 30


def _judge_chosen(series: Series, run: RunState) -> Finding | None:
    """Compare the log-probability of chosen answers with its first values, which are those of the reference."""
    middles = series.middles
    if len(middles) < 8:
        return None
    first, now = median(middles[:2]), median(middles[-3:])
    if first - now < max(FALLEN * abs(first), NATS) or trend(middles) > -0.7:
        return None
    text = f"{series.key} fell from {number(first)} to {number(now)}: chosen answers become unlikely too"
    return CHOSEN.about(series, series.first_step, text, (first - FALLEN * abs(first), 0.0))


def _judge_easy(series: Series, run: RunState) -> Finding | None:
    values = list(series.values)
    if series.count != SOON + ROW or len(values) < SOON or min(values[ROW:]) < ALL:
        return None
    level = number(median(values))
    text = f"{series.key} has been {level} since step {series.steps[ROW]}: all pairs are told apart at once"
    return EASY.about(series, series.steps[ROW], text, (0.5, ALL))


ChosenFalls = judged_once("ChosenFalls", CHOSEN, ("chosen_logps",), _judge_chosen)
EasyPairs = judged_once("EasyPairs", EASY, ("preference_accuracy",), _judge_easy, each="value")
