"""How hard each negative is: from pairwise judgements on a sparse graph to Elo ratings with errors."""

from foils.rate.adaptive import ESTIMATORS, informative_pairs, rate_adaptively
from foils.rate.asking import ask
from foils.rate.bradley_terry import bradley_terry
from foils.rate.candidates import Candidates
from foils.rate.distil import Distilled, distil
from foils.rate.elo import BASE, ELO_PER_LOGIT, ELO_PER_PROBIT, LOGITS_PER_PROBIT, expected_score, online_elo
from foils.rate.graph import algebraic_connectivity, all_pairs, diameter, regular_pairs
from foils.rate.judgements import Judgements, combined
from foils.rate.judges import BiEncoderJudge, CrossEncoderJudge, EnsembleJudge, Judge, load_cross_encoder_judge
from foils.rate.llm_judge import LLMJudge
from foils.rate.llm_prompt import PairAsking, PairPrompt
from foils.rate.pairs import Pairs
from foils.rate.pairwise import PairwiseJudge, load_pairwise_judge
from foils.rate.ratings import Ratings, lead_errors
from foils.rate.records import JudgementRecord, RecordedJudge
from foils.rate.stage import Rated, RatingReport, rate_negatives
from foils.rate.thurstone import thurstone, thurstone_ascent

__all__ = [
    "BASE",
    "ELO_PER_LOGIT",
    "ELO_PER_PROBIT",
    "ESTIMATORS",
    "LOGITS_PER_PROBIT",
    "BiEncoderJudge",
    "Candidates",
    "CrossEncoderJudge",
    "Distilled",
    "EnsembleJudge",
    "Judge",
    "JudgementRecord",
    "Judgements",
    "LLMJudge",
    "PairAsking",
    "PairPrompt",
    "Pairs",
    "PairwiseJudge",
    "Rated",
    "RatingReport",
    "Ratings",
    "RecordedJudge",
    "algebraic_connectivity",
    "all_pairs",
    "ask",
    "bradley_terry",
    "combined",
    "diameter",
    "distil",
    "expected_score",
    "informative_pairs",
    "lead_errors",
    "load_cross_encoder_judge",
    "load_pairwise_judge",
    "online_elo",
    "rate_adaptively",
    "rate_negatives",
    "regular_pairs",
    "thurstone",
    "thurstone_ascent",
]
