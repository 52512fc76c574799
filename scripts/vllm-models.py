#!/usr/bin/env python3
"""Make the model folders that real vLLM serves in the tests of e2e/vllm.

    vllm-models.py --qwen3 FOLDER --plain FOLDER --qwen35-template FILE INTO

The weights are random and tiny, so answers are nonsense; all else that matters to a router is the real thing. Random
numbers come from a fixed seed.

    long     Qwen3, one layer, 128Ki tokens of context; vocabulary and chat template of Qwen3 (--qwen3)
    dense    Qwen3, two layers; the small vocabulary and template of --plain
    hybrid   Qwen3.5's text model: three gated-delta-net layers and one of full attention; vocabulary as dense, the chat
             template of Qwen3.5 (--qwen35-template)
"""
import argparse
import json
import os
import shutil
from pathlib import Path

import torch
import transformers

# transformers' default of 0.02 makes a model that repeats its last token; with this an answer depends on the whole
# prompt, so that a wrong prompt shows.
SPREAD = 0.15


def shape(tokens, context, layers, heads):
    """The settings that all models share; heads = query heads, KV heads, width of a head."""
    return {
        "vocab_size": -(-tokens["size"] // 64) * 64,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": layers,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "head_dim": heads[2],
        "max_position_embeddings": context,
        "initializer_range": SPREAD,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": tokens["<|im_end|>"],
        "pad_token_id": tokens["<|endoftext|>"],
    }


def qwen3(tokens, context, layers, heads):
    config = transformers.Qwen3Config(**shape(tokens, context, layers, heads), rope_theta=1e6)
    return transformers.Qwen3ForCausalLM(config)


def qwen3_5(tokens, context):
    config = transformers.Qwen3_5TextConfig(
        **shape(tokens, context, 4, (4, 2, 64)),
        full_attention_interval=4,
        linear_conv_kernel_dim=4,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=64,
        linear_value_head_dim=64,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e6,
            "partial_rotary_factor": 0.25,
            "mrope_section": [3, 3, 2],
            "mrope_interleaved": True,
        },
    )
    return transformers.Qwen3_5ForCausalLM(config)


def vocabulary(folder):
    """Ids of the special tokens, and the number of all."""
    data = json.loads((folder / "tokenizer.json").read_text())
    ids = dict(data["model"]["vocab"])
    ids.update((t["content"], t["id"]) for t in data["added_tokens"])
    return {"size": max(ids.values()) + 1, **{t: ids[t] for t in ("<|im_end|>", "<|endoftext|>")}}


def write(into, name, source, make, template=None):
    folder = into / name
    folder.mkdir(parents=True)
    for file in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        if (source / file).exists():
            shutil.copy(source / file, folder / file)
    if template:
        shutil.copyfile(template, folder / "chat_template.jinja")
    torch.manual_seed(20261130)
    model = make(vocabulary(source)).to(torch.bfloat16)
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"vllm: model {name}, {size / 1e6:.0f} MB", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--qwen3", type=Path, required=True)
    p.add_argument("--plain", type=Path, required=True)
    p.add_argument("--qwen35-template", type=Path, required=True)
    p.add_argument("into", type=Path)
    a = p.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers.utils.logging.disable_progress_bar()
    write(a.into, "long", a.qwen3, lambda t: qwen3(t, 131072, 1, (2, 1, 32)))
    write(a.into, "dense", a.plain, lambda t: qwen3(t, 32768, 2, (4, 2, 32)))
    write(a.into, "hybrid", a.plain, lambda t: qwen3_5(t, 32768), a.qwen35_template)


if __name__ == "__main__":
    main()
