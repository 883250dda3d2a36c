"""The prompts of every data set: templates and verbalisers.

They equal MeZO's (Malladi et al. 2023, arXiv:2305.17333, appendix E, and their code) to the character: SST-2 is from
Gao et al. 2021, BoolQ and SQuAD follow Brown et al. 2020, and RTE, CB, WiC, WSC and MultiRC are from PromptSource (Bach
et al. 2022). QQP is not in MeZO's list and uses PromptSource's "meaning", with both questions.

CB has three classes, each with its own answer. QQP shows question 1 and question 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

Fields = Mapping[str, str]


class Prompt(NamedTuple):
    """The prompt of one data set."""

    template: str
    """The text before the answer, with the sample's fields in braces."""
    separator: str
    """The text between template and answer: a space, which belongs to the answer, or nothing after a line break."""
    answers: tuple[str, ...]
    """The answer of each class, in the order of the labels; empty if the answer is text of the sample."""
    prepare: Callable[[Fields], Fields] = dict
    """Converts the sample's fields before they are shown."""

    def show(self, fields: Fields) -> str:
        """Return the text before the answer."""
        return self.template.format_map(self.prepare(fields))


def _question(fields: Fields) -> Fields:
    question = fields["question"]
    question = question if question.endswith("?") else f"{question}?"
    return {**fields, "question": question[:1].upper() + question[1:]}


def _pronoun(fields: Fields) -> Fields:
    return {**fields, "span2_text": fields["span2_text"].lower()}


def _stripped(fields: Fields) -> Fields:
    return {name: text.strip() for name, text in fields.items()}


NO_YES, YES_NO = ("No", "Yes"), ("Yes", "No")

PROMPTS = {
    "sst2": Prompt("{sentence} It was", " ", ("terrible", "great"), _stripped),
    "rte": Prompt('{premise}\nDoes this mean that "{hypothesis}" is true? Yes or No?\n', "", YES_NO),
    "cb": Prompt(
        'Suppose {premise} Can we infer that "{hypothesis}"? Yes, No, or Maybe?\n', "", ("Yes", "No", "Maybe")
    ),
    "boolq": Prompt("{passage} {question}", " ", NO_YES, _question),
    "wsc": Prompt(
        '{text}\nIn the previous sentence, does the pronoun "{span2_text}" refer to {span1_text}? Yes or No?\n',
        "",
        NO_YES,
        _pronoun,
    ),
    "wic": Prompt(
        'Does the word "{word}" have the same meaning in these two sentences? Yes, No?\n{sentence1}\n{sentence2}\n',
        "",
        NO_YES,
    ),
    "multirc": Prompt(
        '{paragraph}\nQuestion: {question}\nI found this answer "{answer}". Is that correct? Yes or No?\n', "", NO_YES
    ),
    "qqp": Prompt(
        "Question 1: {question1}\nQuestion 2: {question2}\n\n"
        "Do these two questions convey the same meaning? Yes or no?\n",
        "",
        NO_YES,
    ),
    "squad": Prompt("Title: {title}\nContext: {context}\nQuestion: {question}\nAnswer:", " ", ()),
}
END_OF_ANSWER = "\n"
"""The end of an answer that is text of the sample, in training and in generation."""
