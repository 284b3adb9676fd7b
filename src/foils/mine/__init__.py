"""Where negatives come from."""

from foils.mine.bm25 import BM25Retriever
from foils.mine.candidates import Mined, Retriever, mine
from foils.mine.dense import DenseRetriever
from foils.mine.random import RandomRetriever

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "RandomRetriever", "Retriever", "mine"]
