# The imports say where each name is, and are read when it is first used.
# The signatures of the doors are made by docs/generate.py, for type checkers and editors.
# fmt: off
# ruff: noqa: E501
import collections.abc
import pathlib
import typing

import foils.batching.plan
import foils.data.collection
import foils.data.description
import foils.data.labels
import foils.data.negatives
import foils.data.read
import foils.data.sources
import foils.encode.vectors
import foils.evaluation.doors
import foils.experiments.analysis
import foils.experiments.doors
import foils.experiments.plan
import foils.experiments.score
import foils.experiments.tuned
import foils.labelling.doors
import foils.labelling.relabelling
import foils.llm.asking
import foils.llm.questions
import foils.mining.candidates
import foils.mining.generation
import foils.mining.methods
import foils.mining.scorers
import foils.rating.doors
import foils.rating.judges
import foils.searching.dimensions
import foils.searching.doors
import foils.searching.runs
import foils.selection.doors
import foils.training.doors
import foils.training.settings
import foils.upkeep

from .batching.sampler import batch_sampler as batch_sampler
from .data.collection import Collection as Collection
from .data.negatives import Negatives as Negatives
from .data.run import Run as Run
from .encode.encoder import load_encoder as load_encoder
from .encode.vectors import VectorStore as VectorStore
from .mining.drop_in import mine_hard_negatives as mine_hard_negatives
from .runtime.errors import FoilsError as FoilsError
from .searching.dimensions import DimensionSettings as DimensionSettings
from .searching.dimensions import SharpenedSearch as SharpenedSearch
from .searching.doors import Retriever as Retriever

if not typing.TYPE_CHECKING:
    from .batching.plan import batch as batch
    from .data.description import describe as describe
    from .data.read import load as load
    from .data.sources import export as export
    from .deciding.decision import mine as mine
    from .evaluation.doors import evaluate as evaluate
    from .experiments.doors import demo as demo
    from .experiments.doors import merge as merge
    from .experiments.doors import report as report
    from .experiments.doors import study as study
    from .experiments.doors import tune as tune
    from .experiments.score import score as score
    from .labelling.doors import label as label
    from .labelling.relabelling import relabel as relabel
    from .mining.generation import generate as generate
    from .mining.methods import filter as filter
    from .mining.methods import fuse as fuse
    from .mining.scorers import score_pairs as score_pairs
    from .rating.doors import rate as rate
    from .searching.doors import search as search
    from .selection.doors import select as select
    from .training.doors import train as train
    from .upkeep import cache as cache

def batch(collection: foils.data.read.CollectionLike, method: typing.Literal["random", "hobit", "hobit-c", "ngame",
    "walks", "b3"] = ..., source: foils.data.sources.SourceLike | None = ..., *, batch_size: int = ...,
    settings: collections.abc.Mapping[str, typing.Any] | None = ..., seed: int = ..., split: str = ...,
    form: typing.Literal["triplets", "lists", "pairs"] | None = ..., per_query: int | None = ...,
    max_positives: int | None = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ...,
    device: str | None = ..., query_prompt: str | None = ..., document_prompt: str | None = ...,
    similarity: typing.Literal["cosine", "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16",
    "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.batching.plan.BatchPlan: ...
def describe(collection: foils.data.read.CollectionLike, *, columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.data.description.Description: ...
def load(collection: foils.data.read.CollectionLike, *, columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.data.collection.Collection: ...
def export(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike, *,
    form: typing.Literal["triplets", "tuples", "labelled-pairs", "labelled-lists", "flagembedding", "tevatron",
    "sentence-transformers", "pylate", "triplet", "n-tuple", "labeled-pair", "labeled-list"] = ...,
    scores: str | None = ..., split: str = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.data.negatives.Exported: ...
def mine(collection: foils.data.read.CollectionLike, method: typing.Literal["random", "bm25", "dense", "cross-encoder",
    "ance", "trisampler"] = ..., *, top: int = ..., split: str = ..., ranks: tuple[int, int | None] | str | None = ...,
    draw: typing.Literal["top", "uniform"] = ..., near_duplicate: float | None = ..., pool: typing.Literal["random",
    "bm25", "dense"] = ..., pool_depth: int = ..., keep_positives: bool = ..., seed: int = ...,
    language: typing.Literal["auto", "none", "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch",
    "dutch_porter", "english", "esperanto", "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian",
    "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish", "porter", "portuguese",
    "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil", "turkish", "yiddish"] = ...,
    k1: float | None = ..., b: float | None = ..., margin: float | None = ..., relative_margin: float | None = ...,
    max_score: float | None = ..., min_score: float | None = ..., scorer: typing.Literal["own", "encoder",
    "cross-encoder"] = ..., cross_encoder: foils.encode.vectors.CrossEncoderLike | None = ...,
    columns: collections.abc.Mapping[str, str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ..., ray: str | None = ...,
    encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ..., device: str | None = ...,
    query_prompt: str | None = ..., document_prompt: str | None = ..., similarity: typing.Literal["cosine",
    "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ...,
    trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.mining.candidates.Mined: ...
def evaluate(collection: foils.data.read.CollectionLike, systems: foils.evaluation.doors.SystemsLike | None = ..., *,
    run: foils.evaluation.doors.SystemsLike | None = ..., reranker: foils.evaluation.doors.SystemsLike | None = ...,
    split: str = ..., measures: str | collections.abc.Sequence[str] = ..., top: int = ..., rerank_depth: int = ...,
    against: str | collections.abc.Sequence[str] | None = ..., write_runs: str | pathlib.Path | None = ...,
    seed: int = ..., language: typing.Literal["auto", "none", "arabic", "armenian", "basque", "catalan", "czech",
    "danish", "dutch", "dutch_porter", "english", "esperanto", "estonian", "finnish", "french", "german", "greek",
    "hindi", "hungarian", "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish",
    "porter", "portuguese", "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil", "turkish",
    "yiddish"] = ..., k1: float | None = ..., b: float | None = ..., columns: collections.abc.Mapping[str,
    str] | None = ..., corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., max_length: int | None = ..., device: str | None = ..., query_prompt: str | None = ...,
    document_prompt: str | None = ..., similarity: typing.Literal["cosine", "dot"] | None = ...,
    precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.evaluation.doors.Evaluation: ...
def demo(output: str | pathlib.Path = ..., *, encoder: str = ..., model: str = ...,
    seed: int = ...) -> foils.experiments.doors.Demo: ...
def merge(base: str, tuned: str, *, output: str | pathlib.Path, alpha: float = ..., reranker: bool = ...,
    device: str | None = ...) -> foils.experiments.doors.Merged: ...
def report(studies: foils.experiments.doors.StudiesLike, *, measure: str | None = ..., seed: int = ...,
    all_predictors: bool = ...) -> foils.experiments.analysis.StudyAnalysis: ...
def study(collection: foils.data.read.CollectionLike, sources: foils.data.sources.SourcesLike, *,
    models: str | collections.abc.Sequence[str], output: str | pathlib.Path,
    test_on: foils.experiments.doors.TestsLike | None = ..., all_predictors: bool = ..., seeds: int = ...,
    queries: int | None = ..., per_query: int | None = ..., reranker: bool = ..., first_stage: str | None = ...,
    score_with: str | None = ..., measures: str | collections.abc.Sequence[str] | None = ..., split: str = ...,
    test_split: str = ..., training: collections.abc.Mapping[str, typing.Any] = ..., device: str | None = ...,
    columns: collections.abc.Mapping[str, str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.experiments.analysis.StudyAnalysis: ...
def tune(collection: foils.data.read.CollectionLike, *, model: str = ..., output: str | pathlib.Path | None = ...,
    explain: bool = ..., minutes: float | None = ..., max_length: int | None = ..., lora: int | None = ...,
    trust_remote_code: bool = ..., reranker: bool = ..., first_stage: str | None = ..., seed: int = ...,
    language: typing.Literal["auto", "none", "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch",
    "dutch_porter", "english", "esperanto", "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian",
    "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish", "porter", "portuguese",
    "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil", "turkish", "yiddish"] = ...,
    k1: float | None = ..., b: float | None = ..., device: str | None = ..., columns: collections.abc.Mapping[str,
    str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.experiments.tuned.Tuned | foils.experiments.plan.Plan: ...
def score(collection: foils.data.read.CollectionLike, sources: foils.data.sources.SourcesLike, *,
    rank_by: typing.Literal["benefit", "eci_sem", "eci"] = ..., labels_by: foils.labelling.doors.AskLike | None = ...,
    split: str = ..., hybrids: int = ..., temperature: float = ..., regularization: float = ...,
    sample: int | None = ..., seed: int = ..., labels: foils.data.labels.LabelsLike | None = ...,
    starts: typing.Literal["encoder", "nothing"] = ..., in_batch: int = ..., columns: collections.abc.Mapping[str,
    str] | None = ..., corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., llm_model: str = ..., base_url: str | None = ..., key_variable: str = ...,
    llm_temperature: float = ..., max_tokens: int | None = ..., concurrency: int = ...,
    price: foils.llm.asking.Price | None = ..., max_cost: float | None = ...,
    encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ..., device: str | None = ...,
    query_prompt: str | None = ..., document_prompt: str | None = ..., similarity: typing.Literal["cosine",
    "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ...,
    trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.experiments.score.Scored: ...
def label(collection: foils.data.read.CollectionLike, sources: foils.data.sources.SourcesLike, *, n: int = ...,
    ask: foils.labelling.doors.AskLike | None = ..., output: str | pathlib.Path | None = ...,
    sheet: str | pathlib.Path | None = ..., answers: foils.data.read.AddedLike = ..., labeller: str = ...,
    checks: int = ..., seed: int = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    llm_model: str = ..., base_url: str | None = ..., key_variable: str = ..., llm_temperature: float = ...,
    max_tokens: int | None = ..., concurrency: int = ..., price: foils.llm.asking.Price | None = ...,
    max_cost: float | None = ..., encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ...,
    device: str | None = ..., query_prompt: str | None = ..., document_prompt: str | None = ...,
    similarity: typing.Literal["cosine", "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16",
    "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.labelling.doors.Labelled: ...
def relabel(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike, *,
    labels: foils.data.read.AddedLike = ..., positive_precision: float = ..., split: str = ...,
    columns: collections.abc.Mapping[str, str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ..., encoder: foils.encode.vectors.EncoderLike = ...,
    max_length: int | None = ..., device: str | None = ..., query_prompt: str | None = ...,
    document_prompt: str | None = ..., similarity: typing.Literal["cosine", "dot"] | None = ...,
    precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.labelling.relabelling.Relabelled: ...
def generate(collection: foils.data.read.CollectionLike, *, top: int = ..., split: str = ..., seed: int = ...,
    limit: int | None = ..., prompt: foils.llm.questions.TemplateLike = ..., domain: str | None = ...,
    llm_model: str = ..., base_url: str | None = ..., key_variable: str = ..., llm_temperature: float = ...,
    max_tokens: int | None = ..., concurrency: int = ..., price: foils.llm.asking.Price | None = ...,
    max_cost: float | None = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.mining.generation.Generated: ...
def filter(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike, *,
    margin: float | None = ..., relative_margin: float | None = ..., max_score: float | None = ...,
    min_score: float | None = ..., scorer: typing.Literal["own", "encoder", "cross-encoder"] = ...,
    cross_encoder: foils.encode.vectors.CrossEncoderLike | None = ..., split: str = ...,
    columns: collections.abc.Mapping[str, str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ..., ray: str | None = ...,
    encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ..., device: str | None = ...,
    query_prompt: str | None = ..., document_prompt: str | None = ..., similarity: typing.Literal["cosine",
    "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ...,
    trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.data.negatives.Negatives: ...
def fuse(collection: foils.data.read.CollectionLike, sources: foils.data.sources.SourcesLike, *,
    method: typing.Literal["union", "rrf"] = ..., top: int | None = ..., rrf_k: float = ...,
    columns: collections.abc.Mapping[str, str] | None = ..., corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.mining.methods.Fused: ...
def score_pairs(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike, *,
    teacher: foils.encode.vectors.EncoderLike, split: str = ..., columns: collections.abc.Mapping[str,
    str] | None = ..., corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    max_length: int | None = ..., device: str | None = ..., query_prompt: str | None = ...,
    document_prompt: str | None = ..., similarity: typing.Literal["cosine", "dot"] | None = ...,
    precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.mining.scorers.ScoredPairs: ...
def rate(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike, *,
    judge: foils.rating.judges.JudgesLike = ..., between_judge: foils.rating.judges.JudgeLike | None = ...,
    temperature: float | None = ..., accept_judge: bool = ..., split: str = ..., seed: int = ..., degree: int = ...,
    between: int | None = ..., model: typing.Literal["thurstone", "bradley-terry"] = ...,
    validate: typing.Literal["none", "borderline", "all"] = ..., question: foils.rating.judges.QuestionSettings = ...,
    answer: typing.Literal["preference", "thoughts", "token", "order", "relevance"] = ..., orders: int = ...,
    domain: str = ..., llm_model: str = ..., base_url: str | None = ..., key_variable: str = ...,
    llm_temperature: float = ..., max_tokens: int | None = ..., concurrency: int = ...,
    price: foils.llm.asking.Price | None = ..., max_cost: float | None = ..., columns: collections.abc.Mapping[str,
    str] | None = ..., corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ...,
    device: str | None = ..., query_prompt: str | None = ..., document_prompt: str | None = ...,
    similarity: typing.Literal["cosine", "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16",
    "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.rating.doors.Rated: ...
def search(collection: foils.data.read.CollectionLike, *, model: foils.encode.vectors.EncoderLike = ...,
    dimensions: foils.searching.dimensions.Method | None = ..., run: str | pathlib.Path | None = ...,
    query: str | collections.abc.Sequence[str] | None = ..., queries: str | pathlib.Path | None = ...,
    top: int | None = ..., split: str = ..., feedback_depth: int = ..., tune: str | None = ..., measure: str = ...,
    answers: foils.searching.doors.AnswersLike | None = ..., k_plus: int | None = ..., k_minus: int = ...,
    alpha: float = ..., beta: float = ..., share: float = ..., weight: float = ..., scaled: bool = ...,
    language: typing.Literal["auto", "none", "arabic", "armenian", "basque", "catalan", "czech", "danish", "dutch",
    "dutch_porter", "english", "esperanto", "estonian", "finnish", "french", "german", "greek", "hindi", "hungarian",
    "indonesian", "irish", "italian", "lithuanian", "nepali", "norwegian", "persian", "polish", "porter", "portuguese",
    "romanian", "russian", "serbian", "sesotho", "spanish", "swedish", "tamil", "turkish", "yiddish"] = ...,
    k1: float | None = ..., b: float | None = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., max_length: int | None = ..., device: str | None = ..., query_prompt: str | None = ...,
    document_prompt: str | None = ..., similarity: typing.Literal["cosine", "dot"] | None = ...,
    precision: typing.Literal["auto", "float32", "bfloat16", "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.searching.runs.Searched | foils.searching.doors.Answered: ...
def select(rated: foils.data.sources.SourcesLike, *, by: typing.Literal["table", "percentile", "mixture", "relative",
    "simans", "denoise", "optimal", "benefit"] = ..., settings: collections.abc.Mapping[str, typing.Any] | None = ...,
    collection: foils.data.read.CollectionLike | None = ..., split: str = ..., seed: int = ...,
    temperature: float = ..., labels: foils.data.labels.LabelsLike | None = ..., starts: typing.Literal["encoder",
    "nothing"] = ..., in_batch: int = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ..., add_judgements: foils.data.read.AddedLike = ...,
    ray: str | None = ..., encoder: foils.encode.vectors.EncoderLike = ..., max_length: int | None = ...,
    device: str | None = ..., query_prompt: str | None = ..., document_prompt: str | None = ...,
    similarity: typing.Literal["cosine", "dot"] | None = ..., precision: typing.Literal["auto", "float32", "bfloat16",
    "float16"] = ..., trust_remote_code: bool = ...,
    vectors: foils.encode.vectors.StoreLike | None = ...) -> foils.selection.doors.Selected | foils.selection.doors.ByBenefit: ...
def train(collection: foils.data.read.CollectionLike, source: foils.data.sources.SourceLike | None = ..., *,
    model: foils.training.doors.ModelLike = ..., output: str | pathlib.Path, reranker: bool = ...,
    batches: typing.Literal["random", "hobit", "hobit-c", "ngame", "walks", "b3", "progress"] = ...,
    batch_settings: collections.abc.Mapping[str, typing.Any] | None = ...,
    also: foils.training.settings.DataSetsLike = ..., similarity: typing.Literal["cosine", "dot"] | None = ...,
    query_prompt: str | None = ..., document_prompt: str | None = ..., trust_remote_code: bool = ...,
    loss: str | None = ..., target: typing.Literal["labels", "teacher", "elo"] | None = ...,
    draw_negatives: int | None = ..., loss_settings: collections.abc.Mapping[str, typing.Any] = ...,
    batch_size: int = ..., mini_batch_size: int | None = ..., epochs: int = ..., steps: int | None = ...,
    learning_rate: float | None = ..., max_length: int | None = ..., patience: int | None = ..., seed: int = ...,
    matryoshka: int | collections.abc.Sequence[int] | None = ..., lora: int | None = ..., mask: str | None = ...,
    mask_margin: float | None = ..., trainer: collections.abc.Mapping[str, typing.Any] = ..., split: str = ...,
    form: typing.Literal["triplets", "lists", "pairs"] | None = ..., per_query: int | None = ...,
    max_positives: int | None = ..., dev: str | None = ..., dev_run: foils.training.doors.RunLike | None = ...,
    resume: bool = ..., device: str | None = ..., columns: collections.abc.Mapping[str, str] | None = ...,
    corpus: foils.data.read.TableLike | None = ...,
    add_judgements: foils.data.read.AddedLike = ...) -> foils.training.settings.Trained: ...
def cache(action: typing.Literal["size", "prune"] = ..., *, keep: int | None = ...) -> foils.upkeep.Cache: ...
