"""Small real models, built from their configs, with tokenizers trained on a few sentences."""

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

TEXTS = [
    "a wonderful film that is great fun",
    "a terrible mess , dull and far too long",
    "the acting is great and the story is moving",
    "no wit , no charm , maybe the worst film of the year",
    "yes , it is a good film",
    "input: output: sentence one two equivalent entailment correct It was Review: Sentiment:",
    "negative positive great terrible yes no maybe",
]
WORDS = ["negative", "positive", "great", "terrible", "yes", "no", "maybe"]
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def make_tokenizer(family: str, bos: bool = False) -> PreTrainedTokenizerFast:
    """A byte-level BPE tokenizer; masked ones frame the text, causal ones may have a BOS."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = TEXTS * 4 + [f" {word}" for word in WORDS for _ in range(50)]
    tokenizer.train_from_iterator(corpus, trainer)
    single = "<s> $A </s>" if family == "masked" else "<s> $A" if bos else "$A"
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        **({"mask_token": "<mask>", "cls_token": "<s>"} if family == "masked" else {}),
    )


COMMON: dict[str, Any] = {"vocab_size": 700, "hidden_size": 32}
BERT_LIKE = COMMON | {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 1,
}
LLAMA_LIKE = COMMON | {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 256,
}
OPT_LIKE = COMMON | {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "ffn_dim": 64,
    "max_position_embeddings": 256,
    "word_embed_proj_dim": 32,
    "pad_token_id": 1,
}
GPT2_LIKE: dict[str, Any] = {
    "vocab_size": 700, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256,
}  # fmt: skip

ARCHITECTURES: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    # name: family, config class, model class, config
    "roberta": ("masked", "RobertaConfig", "RobertaForMaskedLM",
                BERT_LIKE | {"max_position_embeddings": 258}),
    "bert": ("masked", "BertConfig", "BertForMaskedLM",
             BERT_LIKE | {"max_position_embeddings": 256}),
    "albert": ("masked", "AlbertConfig", "AlbertForMaskedLM",
               BERT_LIKE | {"max_position_embeddings": 256, "embedding_size": 16}),
    "opt": ("causal", "OPTConfig", "OPTForCausalLM", OPT_LIKE),
    "opt-350m": ("causal", "OPTConfig", "OPTForCausalLM",
                 OPT_LIKE | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "gpt2": ("causal", "GPT2Config", "GPT2LMHeadModel", GPT2_LIKE),
    "llama": ("causal", "LlamaConfig", "LlamaForCausalLM", LLAMA_LIKE),
    "gemma2": ("causal", "Gemma2Config", "Gemma2ForCausalLM",
               LLAMA_LIKE | {"head_dim": 8, "sliding_window": 64}),
    "mistral": ("causal", "MistralConfig", "MistralForCausalLM",
                LLAMA_LIKE | {"sliding_window": 16}),
    "bloom": ("causal", "BloomConfig", "BloomForCausalLM",
              COMMON | {"n_layer": 2, "n_head": 4}),
}  # fmt: skip
MASKED = [name for name, (family, *_) in ARCHITECTURES.items() if family == "masked"]
CAUSAL = [name for name, (family, *_) in ARCHITECTURES.items() if family == "causal"]


def make_module(name: str, seed: int = 0) -> Any:
    """A model with random weights, larger than usual so that differences show."""
    _, config_class, model_class, settings = ARCHITECTURES[name]
    config = getattr(transformers, config_class)(**settings)
    torch.manual_seed(seed)
    module = getattr(transformers, model_class)(config).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
    return module


def save_folder(name: str, folder: Path, bos: bool = False) -> Path:
    """A model folder as a user has it."""
    logging.disable_progress_bar()  # a bar would be among what a test's command printed
    try:
        make_module(name).save_pretrained(folder)
    finally:
        logging.enable_progress_bar()
    make_tokenizer(ARCHITECTURES[name][0], bos).save_pretrained(folder)
    return folder
