"""Problems on text: pretrained language models, sentence encoders, prompts, tokens and files.

Doors: `files`, `language_problem`, `sentence_problem`, `task`, `training`, `weights`.
"""
