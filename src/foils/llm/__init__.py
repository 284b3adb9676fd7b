"""Language models behind OpenAI-compatible servers: asking many records patiently, and keeping what is finished."""

from foils.llm.client import Client, NoAnswerError, Session, Usage, ask_all
from foils.llm.kept import ask_missing, digest
from foils.llm.log import RecordLog
from foils.llm.settings import LLMSettings

__all__ = [
    "Client",
    "LLMSettings",
    "NoAnswerError",
    "RecordLog",
    "Session",
    "Usage",
    "ask_all",
    "ask_missing",
    "digest",
]
