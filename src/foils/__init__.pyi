# The imports say where each name is, and are read when it is first used.
# The signatures of the doors are made by docs/generate.py, for type checkers and editors.
# fmt: off
import typing

import foils.batching.plan
import foils.data.collection
import foils.data.description
import foils.data.negatives
import foils.data.sources
import foils.deciding.doors
import foils.evaluation.systems
import foils.experiments.analysis
import foils.experiments.doors
import foils.experiments.plan
import foils.experiments.tune
import foils.labelling.doors
import foils.labelling.relabelling
import foils.mining.candidates
import foils.mining.fusion
import foils.mining.generation
import foils.mining.scorers
import foils.rating.doors
import foils.searching.runs
import foils.selection.benefit
import foils.selection.doors
import foils.training.doors
import foils.upkeep

from .batching.sampler import batch_sampler as batch_sampler
from .data.collection import Collection as Collection
from .data.negatives import Negatives as Negatives
from .data.run import Run as Run
from .encode.encoder import load_encoder as load_encoder
from .encode.vectors import VectorStore as VectorStore
from .mining.drop_in import mine_hard_negatives as mine_hard_negatives
from .runtime.errors import FoilsError as FoilsError
from .searching.settings import DimensionSettings as DimensionSettings
from .searching.sharpened import SharpenedSearch as SharpenedSearch

if not typing.TYPE_CHECKING:
    from .batching.plan import batch as batch
    from .data.description import describe as describe
    from .data.read import load as load
    from .data.sources import export as export
    from .deciding.doors import score as score
    from .deciding.mine import mine as mine
    from .evaluation.doors import evaluate as evaluate
    from .experiments.doors import demo as demo
    from .experiments.doors import merge as merge
    from .experiments.doors import report as report
    from .experiments.doors import study as study
    from .experiments.doors import tune as tune
    from .labelling.doors import label as label
    from .labelling.relabelling import relabel as relabel
    from .mining.fusion import fuse as fuse
    from .mining.generation import generate as generate
    from .mining.methods import filter as filter
    from .mining.scorers import score_pairs as score_pairs
    from .rating.doors import rate as rate
    from .searching.doors import search as search
    from .selection.doors import compose as compose
    from .selection.doors import select as select
    from .training.doors import train as train
    from .upkeep import cache as cache

_homes: dict[str, list[str]]

def batch(collection: typing.Any, method: typing.Any = ..., source: typing.Any = ..., *, batch_size: int = ...,
    settings: typing.Any = ..., seed: int = ..., split: typing.Any = ..., form: typing.Any = ...,
    per_query: int | None = ..., max_positives: int | None = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ..., vectors: typing.Any = ...) -> foils.batching.plan.BatchPlan: ...
def describe(collection: typing.Any, *, columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.data.description.Description: ...
def load(collection: typing.Any, *, columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.data.collection.Collection: ...
def export(collection: typing.Any, source: typing.Any, *, form: typing.Any = ..., scores: typing.Any = ...,
    number: int | None = ..., split: typing.Any = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.data.sources.Exported: ...
def score(collection: typing.Any, sources: typing.Any, *, rank_by: typing.Any = ..., split: typing.Any = ...,
    hybrids: int = ..., temperature: float = ..., regularization: float = ..., sample: int | None = ...,
    seed: int = ..., labels: typing.Any = ..., starts: typing.Any = ..., in_batch: int = ..., columns: typing.Any = ...,
    corpus: typing.Any = ..., add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ...,
    max_length: int | None = ..., device: typing.Any = ..., query_prompt: typing.Any = ...,
    document_prompt: typing.Any = ..., similarity: typing.Any = ..., precision: typing.Any = ...,
    encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.deciding.doors.Scored: ...
def mine(collection: typing.Any, method: typing.Any = ..., *, top: int = ..., split: typing.Any = ...,
    ranks: typing.Any = ..., draw: typing.Any = ..., near_duplicate: float = ..., seed: int = ...,
    pool: typing.Any = ..., pool_depth: int = ..., index: typing.Any = ..., margin: float | None = ...,
    relative_margin: float | None = ..., max_score: float | None = ..., min_score: float | None = ...,
    scorer: typing.Any = ..., cross_encoder: typing.Any = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ..., vectors: typing.Any = ...) -> foils.mining.candidates.Mined: ...
def evaluate(collection: typing.Any, systems: typing.Any = ..., *, run: typing.Any = ..., reranker: typing.Any = ...,
    split: typing.Any = ..., measures: typing.Any = ..., top: int = ..., rerank_depth: int = ...,
    against: typing.Any = ..., seed: int = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., max_length: int | None = ..., device: typing.Any = ...,
    query_prompt: typing.Any = ..., document_prompt: typing.Any = ..., similarity: typing.Any = ...,
    precision: typing.Any = ..., encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.evaluation.systems.Evaluation: ...
def demo(output: typing.Any = ..., *, model: typing.Any = ..., seed: int = ...) -> foils.experiments.doors.Demo: ...
def merge(base: typing.Any, tuned: typing.Any, *, output: typing.Any, alpha: float = ..., reranker: bool = ...,
    device: typing.Any = ...) -> foils.experiments.doors.Merged: ...
def report(studies: typing.Any, *, measure: typing.Any = ...,
    seed: int = ...) -> foils.experiments.analysis.StudyAnalysis: ...
def study(collection: typing.Any, sources: typing.Any, *, models: typing.Any, output: typing.Any,
    test_on: typing.Any = ..., seeds: int = ..., queries: int | None = ..., per_query: int | None = ...,
    reranker: bool = ..., first_stage: typing.Any = ..., fused_with: typing.Any = ..., score_with: typing.Any = ...,
    measures: typing.Any = ..., split: typing.Any = ..., test_split: typing.Any = ..., training: typing.Any = ...,
    device: typing.Any = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.experiments.analysis.StudyAnalysis: ...
def tune(collection: typing.Any = ..., *, model: typing.Any = ..., output: typing.Any = ..., plan: typing.Any = ...,
    explain: bool = ..., minutes: float | None = ..., max_length: int | None = ..., lora: int | None = ...,
    trust_remote_code: bool = ..., reranker: bool = ..., first_stage: typing.Any = ..., seed: int = ...,
    device: typing.Any = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.experiments.tune.Tuned | foils.experiments.plan.Plan: ...
def label(collection: typing.Any, sources: typing.Any, *, n: int = ..., ask: typing.Any = ..., output: typing.Any,
    answers: typing.Any = ..., labeller: typing.Any = ..., checks: int = ..., question: typing.Any = ...,
    seed: int = ..., columns: typing.Any = ..., corpus: typing.Any = ..., add_judgements: typing.Any = ...,
    llm_model: typing.Any = ..., base_url: typing.Any = ..., llm_temperature: float = ..., max_tokens: int | None = ...,
    concurrency: int = ..., price: typing.Any = ..., max_cost: float | None = ..., encoder: typing.Any = ...,
    max_length: int | None = ..., device: typing.Any = ..., query_prompt: typing.Any = ...,
    document_prompt: typing.Any = ..., similarity: typing.Any = ..., precision: typing.Any = ...,
    encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.labelling.doors.Labelled: ...
def relabel(collection: typing.Any, source: typing.Any, *, judge: typing.Any = ..., budget: float = ...,
    positive_precision: float = ..., negative_precision: float = ..., unsure: typing.Any = ...,
    labels: typing.Any = ..., checks: int = ..., question: typing.Any = ..., split: typing.Any = ..., seed: int = ...,
    columns: typing.Any = ..., corpus: typing.Any = ..., add_judgements: typing.Any = ..., llm_model: typing.Any = ...,
    base_url: typing.Any = ..., llm_temperature: float = ..., max_tokens: int | None = ..., concurrency: int = ...,
    price: typing.Any = ..., max_cost: float | None = ..., encoder: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ..., vectors: typing.Any = ...) -> foils.labelling.relabelling.Relabelled: ...
def fuse(collection: typing.Any, sources: typing.Any, *, method: typing.Any = ..., top: int | None = ...,
    rrf_k: float = ..., weights: typing.Any = ..., normalisation: typing.Any = ..., columns: typing.Any = ...,
    corpus: typing.Any = ..., add_judgements: typing.Any = ...) -> foils.mining.fusion.Fused: ...
def generate(collection: typing.Any, *, top: int = ..., split: typing.Any = ..., seed: int = ...,
    limit: int | None = ..., prompt: typing.Any = ..., domain: typing.Any = ..., llm_model: typing.Any = ...,
    base_url: typing.Any = ..., llm_temperature: float = ..., max_tokens: int | None = ..., concurrency: int = ...,
    price: typing.Any = ..., max_cost: float | None = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.mining.generation.Generated: ...
def filter(collection: typing.Any, source: typing.Any, *, margin: float | None = ...,
    relative_margin: float | None = ..., max_score: float | None = ..., min_score: float | None = ...,
    scorer: typing.Any = ..., cross_encoder: typing.Any = ..., split: typing.Any = ..., columns: typing.Any = ...,
    corpus: typing.Any = ..., add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ...,
    max_length: int | None = ..., device: typing.Any = ..., query_prompt: typing.Any = ...,
    document_prompt: typing.Any = ..., similarity: typing.Any = ..., precision: typing.Any = ...,
    encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.data.negatives.Negatives: ...
def score_pairs(collection: typing.Any, source: typing.Any, *, teacher: typing.Any, split: typing.Any = ...,
    columns: typing.Any = ..., corpus: typing.Any = ..., add_judgements: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ..., vectors: typing.Any = ...) -> foils.mining.scorers.ScoredPairs: ...
def rate(collection: typing.Any, source: typing.Any, *, judge: typing.Any = ..., between_judge: typing.Any = ...,
    temperature: typing.Any = ..., judgements: typing.Any = ..., split: typing.Any = ..., seed: int = ...,
    degree: int = ..., budget: int | None = ..., between: int | None = ..., model: typing.Any = ...,
    prior_sd: float | None = ..., validate: typing.Any = ..., distil: typing.Any = ..., distil_from: typing.Any = ...,
    distil_form: typing.Any = ..., distil_epochs: int = ..., distil_length: int = ..., question: typing.Any = ...,
    answer: typing.Any = ..., orders: int = ..., domain: typing.Any = ..., llm_model: typing.Any = ...,
    base_url: typing.Any = ..., llm_temperature: float = ..., max_tokens: int | None = ..., concurrency: int = ...,
    price: typing.Any = ..., max_cost: float | None = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ..., vectors: typing.Any = ...) -> foils.rating.doors.Rated: ...
def search(collection: typing.Any, *, model: typing.Any = ..., dimensions: typing.Any = ..., run: typing.Any = ...,
    split: typing.Any = ..., top: int = ..., feedback_depth: int = ..., second_pass: typing.Any = ...,
    index: typing.Any = ..., tune: typing.Any = ..., measure: typing.Any = ..., answers: typing.Any = ...,
    k_plus: int | None = ..., k_minus: int = ..., alpha: float = ..., beta: float = ..., share: float = ...,
    weight: float = ..., scaled: bool = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., max_length: int | None = ..., device: typing.Any = ...,
    query_prompt: typing.Any = ..., document_prompt: typing.Any = ..., similarity: typing.Any = ...,
    precision: typing.Any = ..., encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.searching.runs.Searched: ...
def compose(collection: typing.Any, sources: typing.Any, *, top: int = ..., regularization: float = ...,
    weight: typing.Any = ..., temperature: float = ..., split: typing.Any = ..., columns: typing.Any = ...,
    corpus: typing.Any = ..., add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ...,
    max_length: int | None = ..., device: typing.Any = ..., query_prompt: typing.Any = ...,
    document_prompt: typing.Any = ..., similarity: typing.Any = ..., precision: typing.Any = ...,
    encode_batch: int | None = ..., trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.selection.benefit.Composed: ...
def select(rated: typing.Any, *, by: typing.Any = ..., settings: typing.Any = ..., collection: typing.Any = ...,
    split: typing.Any = ..., seed: int = ..., temperature: float = ..., labels: typing.Any = ...,
    starts: typing.Any = ..., in_batch: int = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ..., ray: typing.Any = ..., encoder: typing.Any = ..., max_length: int | None = ...,
    device: typing.Any = ..., query_prompt: typing.Any = ..., document_prompt: typing.Any = ...,
    similarity: typing.Any = ..., precision: typing.Any = ..., encode_batch: int | None = ...,
    trust_remote_code: bool = ...,
    vectors: typing.Any = ...) -> foils.selection.doors.Selected | foils.selection.benefit.ByBenefit: ...
def train(collection: typing.Any, source: typing.Any = ..., *, model: typing.Any = ..., output: typing.Any,
    reranker: bool = ..., recipe: typing.Any = ..., batches: typing.Any = ..., batch_settings: typing.Any = ...,
    also: typing.Any = ..., mixture: typing.Any = ..., similarity: typing.Any = ..., query_prompt: typing.Any = ...,
    document_prompt: typing.Any = ..., trust_remote_code: bool = ..., loss: typing.Any = ..., target: typing.Any = ...,
    draw_negatives: int | None = ..., loss_settings: typing.Any = ..., batch_size: int | None = ...,
    mini_batch_size: int | None = ..., epochs: int | None = ..., learning_rate: float | None = ...,
    max_length: int | None = ..., patience: int | None = ..., seed: int = ..., matryoshka: typing.Any = ...,
    lora: int | None = ..., mask: typing.Any = ..., mask_margin: float | None = ..., beside: typing.Any = ...,
    trainer: typing.Any = ..., split: typing.Any = ..., form: typing.Any = ..., per_query: int | None = ...,
    max_positives: int | None = ..., dev: typing.Any = ..., dev_run: typing.Any = ..., resume: bool = ...,
    device: typing.Any = ..., columns: typing.Any = ..., corpus: typing.Any = ...,
    add_judgements: typing.Any = ...) -> foils.training.doors.Trained: ...
def cache(action: typing.Any = ..., *, keep: int | None = ...,
    older_than: float | None = ...) -> foils.upkeep.Cache: ...
