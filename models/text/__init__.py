"""Problems on text: pretrained language models, sentence encoders, prompts, tokens and files."""
