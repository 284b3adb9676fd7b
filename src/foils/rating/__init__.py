"""How hard each negative is: from pairwise judgements on a sparse graph to Elo ratings with errors."""

from foils.rating.cross_query import answers_between, fit_offsets, pairs_between
from foils.rating.distil import PairwiseJudge, distil, load_pairwise_judge, save_judge
from foils.rating.doors import Rated
from foils.rating.estimators import (
    Ratings,
    bradley_terry,
    deviance,
    deviance_explained,
    lead_errors,
    online_elo,
    thurstone,
)
from foils.rating.graph import (
    algebraic_connectivity,
    all_pairs,
    candidate_keys,
    regular_pairs,
)
from foils.rating.judges import (
    BiEncoderJudge,
    CrossEncoderJudge,
    Judge,
    ListJudge,
    LLMJudge,
    QuestionSettings,
    ScoringJudge,
)
from foils.rating.pairs import Candidates, Judgements, Pairs, agreements, combined
from foils.rating.prior import Spread, refined, spread_of
from foils.rating.session import JudgementRecord, RecordedJudge, ask

__all__ = [
    "BiEncoderJudge",
    "Candidates",
    "CrossEncoderJudge",
    "Judge",
    "JudgementRecord",
    "Judgements",
    "LLMJudge",
    "ListJudge",
    "Pairs",
    "PairwiseJudge",
    "QuestionSettings",
    "Rated",
    "Ratings",
    "RecordedJudge",
    "ScoringJudge",
    "Spread",
    "agreements",
    "algebraic_connectivity",
    "all_pairs",
    "answers_between",
    "ask",
    "bradley_terry",
    "candidate_keys",
    "combined",
    "deviance",
    "deviance_explained",
    "distil",
    "fit_offsets",
    "lead_errors",
    "load_pairwise_judge",
    "online_elo",
    "pairs_between",
    "refined",
    "regular_pairs",
    "save_judge",
    "spread_of",
    "thurstone",
]
