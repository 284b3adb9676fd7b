"""Language models behind OpenAI-compatible servers: asking many records patiently, and keeping what is finished."""

from foils.llm.answers import AnswerStore
from foils.llm.asking import Session, ask_all, ask_missing, digest
from foils.llm.client import Client, LLMSettings, ModelUse, Purse, Sampling, Usage
from foils.llm.prompts import Template, fenced
from foils.llm.questions import Form, Questions
from foils.llm.relevance import RelevanceQuestions
from foils.llm.request import NoAnswerError, Request

__all__ = [
    "AnswerStore", "Client", "Form", "LLMSettings", "ModelUse", "NoAnswerError", "Purse",
    "Questions", "RelevanceQuestions", "Request", "Sampling", "Session", "Template", "Usage", "ask_all", "ask_missing",
    "digest", "fenced",
]  # fmt: skip
