"""The special tokens, and how a chat is written with them."""

from __future__ import annotations


PAD = "<|pad|>"
BOS = "<|bos|>"
EOS = "<|eos|>"
SYSTEM = "<|system|>"
USER = "<|user|>"
ASSISTANT = "<|assistant|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|' + message['role'] + '|>' }}\n{{ message['content'] }}{{ eos_token }}\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)


def chat_text(question: str) -> str:
    """A user's question up to where the answer begins, as the template renders it."""
    return f"{USER}\n{question}{EOS}\n{ASSISTANT}\n"
