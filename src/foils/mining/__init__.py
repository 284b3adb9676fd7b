"""Where negatives come from."""

from foils.mining.candidates import Mined, mine_negatives
from foils.mining.retrievers import BM25Retriever, DenseRetriever, RandomRetriever
from foils.mining.rules import Retriever

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "RandomRetriever", "Retriever", "mine_negatives"]
