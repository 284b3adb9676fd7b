"""Where negatives come from."""

from foils.mining.candidates import Mined, Miner
from foils.mining.retrievers import BM25Retriever, DenseRetriever, RandomRetriever
from foils.mining.rules import Retriever

__all__ = ["BM25Retriever", "DenseRetriever", "Mined", "Miner", "RandomRetriever", "Retriever"]
