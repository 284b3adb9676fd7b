"""Language models behind OpenAI-compatible servers: asking many records patiently, and keeping what is finished."""

from foils.llm.batch import BatchFolder, WaitingError
from foils.llm.client import Client, Usage
from foils.llm.completions import NoAnswerError
from foils.llm.kept import ask_missing, digest
from foils.llm.log import RecordLog
from foils.llm.pointwise import PairQuestions, ValueForm
from foils.llm.questions import Question, Sampling, ask_questions
from foils.llm.sessions import Session, ask_all
from foils.llm.settings import LLMSettings
from foils.llm.template import Template
from foils.llm.use import Asked, ModelUse

__all__ = [
    "Asked",
    "BatchFolder",
    "Client",
    "LLMSettings",
    "ModelUse",
    "NoAnswerError",
    "PairQuestions",
    "Question",
    "RecordLog",
    "Sampling",
    "Session",
    "Template",
    "Usage",
    "ValueForm",
    "WaitingError",
    "ask_all",
    "ask_missing",
    "ask_questions",
    "digest",
]
