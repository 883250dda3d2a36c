"""Problems on text: pretrained language models, sentence encoders, prompts, tokens and files.

Doors: `language_problem`, `language_settings`, `sentence_problem`, `sentence_settings`, `weights`.
"""
