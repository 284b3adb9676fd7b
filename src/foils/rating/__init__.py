"""How hard each negative is: from pairwise judgements on a sparse graph to Elo ratings with errors."""

from foils.rating.adaptive import ESTIMATORS, ask_adaptively, informative_pairs, rate_adaptively
from foils.rating.agreement import agreements, judge_weights, krippendorff_alpha, sureness
from foils.rating.asking import ask
from foils.rating.between import BetweenJudge, Offsets, answers_between, fit_offsets, pairs_between
from foils.rating.bradley_terry import bradley_terry
from foils.rating.candidates import Candidates
from foils.rating.distil import Distilled, distil
from foils.rating.drawing import candidate_keys
from foils.rating.elo import online_elo
from foils.rating.goodness import deviance, deviance_explained, intransitive_triples
from foils.rating.graph import algebraic_connectivity, all_pairs, diameter, first_pairs, random_pairs, regular_pairs
from foils.rating.judgements import Judgements, combined
from foils.rating.judges import EnsembleJudge, Judge
from foils.rating.llm_judge import LLMJudge
from foils.rating.opening import JUDGES
from foils.rating.pairs import Pairs
from foils.rating.pairwise import PairwiseJudge, load_pairwise_judge, save_judge
from foils.rating.question import QuestionSettings
from foils.rating.ratings import Ratings, lead_errors
from foils.rating.records import JudgementRecord, RecordedJudge
from foils.rating.results import Rated, RatingSummary
from foils.rating.score_judges import BiEncoderJudge, CrossEncoderJudge, load_cross_encoder_judge
from foils.rating.settings import DistilSettings, JudgeSettings, RatingSettings
from foils.rating.spread import Spread, refined, spread_of
from foils.rating.stage import rate_negatives
from foils.rating.thurstone import thurstone, thurstone_ascent
from foils.statistics.elo_scale import BASE, ELO_PER_LOGIT, ELO_PER_PROBIT, LOGITS_PER_PROBIT, expected_score

__all__ = [
    "BASE",
    "ELO_PER_LOGIT",
    "ELO_PER_PROBIT",
    "ESTIMATORS",
    "JUDGES",
    "LOGITS_PER_PROBIT",
    "BetweenJudge",
    "BiEncoderJudge",
    "Candidates",
    "CrossEncoderJudge",
    "DistilSettings",
    "Distilled",
    "EnsembleJudge",
    "Judge",
    "JudgeSettings",
    "JudgementRecord",
    "Judgements",
    "LLMJudge",
    "Offsets",
    "Pairs",
    "PairwiseJudge",
    "QuestionSettings",
    "Rated",
    "RatingSettings",
    "RatingSummary",
    "Ratings",
    "RecordedJudge",
    "Spread",
    "agreements",
    "algebraic_connectivity",
    "all_pairs",
    "answers_between",
    "ask",
    "ask_adaptively",
    "bradley_terry",
    "candidate_keys",
    "combined",
    "deviance",
    "deviance_explained",
    "diameter",
    "distil",
    "expected_score",
    "first_pairs",
    "fit_offsets",
    "informative_pairs",
    "intransitive_triples",
    "judge_weights",
    "krippendorff_alpha",
    "lead_errors",
    "load_cross_encoder_judge",
    "load_pairwise_judge",
    "online_elo",
    "pairs_between",
    "random_pairs",
    "rate_adaptively",
    "rate_negatives",
    "refined",
    "regular_pairs",
    "save_judge",
    "spread_of",
    "sureness",
    "thurstone",
    "thurstone_ascent",
]
