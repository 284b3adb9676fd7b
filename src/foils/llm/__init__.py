"""Language models behind OpenAI-compatible servers: asking many records patiently, and keeping what is finished."""

from foils.llm.answers import AnswerStore
from foils.llm.asking import NoAnswerError, Request, Session, announce, ask_all, ask_missing, digest, estimated
from foils.llm.client import Client, LLMSettings, Purse, Sampling, Usage
from foils.llm.questions import Form, Questions, RelevanceQuestions, Template, fenced

__all__ = [
    "AnswerStore", "Client", "Form", "LLMSettings", "NoAnswerError", "Purse",
    "Questions", "RelevanceQuestions", "Request", "Sampling", "Session", "Template", "Usage", "announce", "ask_all",
    "ask_missing", "digest", "estimated", "fenced",
]  # fmt: skip
