"""Problems on text: pretrained language models, sentence encoders, prompts, tokens and files.

Doors: `language_network`, `language_problem`, `language_settings`, `last_blocks`, `new_texts`, `problem`,
`published`, `sentence_problem`, `sentence_settings`, `shapes`, `stated`, `task`, `tokens`, `training`, `weights`.
"""
