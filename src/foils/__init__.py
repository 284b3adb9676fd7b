"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure.

Each function is what the verb of its name does in the program. A name is loaded when it is first
used, so that importing foils loads nothing heavy; `__init__.pyi` has the types, and is made of
these names by docs/generate.py.
"""

import lazy_loader

HOMES = {  # module -> public names that it defines
    "batching.plan": ["batch"],
    "batching.sampler": ["batch_sampler"],
    "data.collection": ["Collection"],
    "data.description": ["describe"],
    "data.negatives": ["Negatives"],
    "data.read": ["load"],
    "data.run": ["Run"],
    "data.sources": ["export"],
    "deciding.decision": ["mine"],
    "encode.encoder": ["load_encoder"],
    "encode.vectors": ["VectorStore"],
    "evaluation.doors": ["evaluate"],
    "experiments.doors": ["demo", "merge", "report", "study", "tune"],
    "experiments.score": ["score"],
    "labelling.doors": ["label"],
    "labelling.relabelling": ["relabel"],
    "mining.drop_in": ["mine_hard_negatives"],
    "mining.generation": ["generate"],
    "mining.methods": ["filter", "fuse"],
    "mining.scorers": ["score_pairs"],
    "rating.doors": ["rate"],
    "runtime.errors": ["FoilsError"],
    "searching.dimensions": ["DimensionSettings", "SharpenedSearch"],
    "searching.doors": ["Retriever", "search"],
    "selection.doors": ["select"],
    "training.doors": ["train"],
    "upkeep": ["cache"],
}

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=HOMES)
