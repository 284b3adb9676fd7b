"""Where negatives come from."""

from foils.mining.bm25 import BM25Retriever
from foils.mining.candidates import Mined, Retriever, mine
from foils.mining.dense import DenseRetriever
from foils.mining.random import RandomRetriever

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "RandomRetriever", "Retriever", "mine"]
