"""Where negatives come from."""

from foils.mining.candidates import mine_negatives
from foils.mining.pairs import Retriever
from foils.mining.results import Mined
from foils.mining.retrievers import BM25Retriever, DenseRetriever, RandomRetriever

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "RandomRetriever", "Retriever", "mine_negatives"]
