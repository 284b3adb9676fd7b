"""Where negatives come from."""

from foils.mining.bm25 import BM25Retriever
from foils.mining.candidates import Retriever, mine_negatives
from foils.mining.dense import DenseRetriever
from foils.mining.random import RandomRetriever
from foils.mining.results import Mined

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "RandomRetriever", "Retriever", "mine_negatives"]
