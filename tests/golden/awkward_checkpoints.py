"""Writes small checkpoints with awkward but legal shapes, the same bytes everywhere.

    awkward_checkpoints.py CASE DIRECTORY

Every CASE is a function in SHAPES. Random numbers come from a counter hash, not from a library's
generator, so the files do not depend on any version.
"""

import json
import pathlib
import sys

import numpy as np


class Numbers:
    """A stream of reproducible numbers: splitmix64 of (seed, counter)."""

    def __init__(self, seed):
        self.next = np.uint64(seed) << np.uint64(32)

    def bits(self, count):
        with np.errstate(over="ignore"):
            z = (self.next + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            self.next += np.uint64(count)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            return z ^ (z >> np.uint64(31))

    def uniform(self, shape, low, high):
        """Float32 in [low, high)."""
        count = int(np.prod(shape))
        unit = (self.bits(count) >> np.uint64(40)).astype(np.float64) / 2**24
        return (low + (high - low) * unit).astype(np.float32).reshape(shape)

    def bytes(self, shape, low, high):
        """Unsigned bytes in low..high-1."""
        count = int(np.prod(shape))
        return (low + self.bits(count) % np.uint64(high - low)).astype(np.uint8).reshape(shape)


def nested_config(shape):
    """config.json in the released form."""
    mla = shape["mla_layers"]
    return {
        "model_type": "kimi_k3", "tie_word_embeddings": False,
        "text_config": {
            "vocab_size": shape["vocab"], "hidden_size": shape["hidden"], "intermediate_size": shape["dense_width"],
            "num_hidden_layers": shape["layers"], "num_attention_heads": shape["mla_heads"],
            "num_key_value_heads": shape["mla_heads"], "hidden_act": "situ", "activation_situ_beta": 4.0,
            "activation_situ_linear_beta": 25.0, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
            "first_k_dense_replace": shape["dense_layers"], "moe_layer_freq": 1, "num_experts": shape["experts"],
            "num_experts_per_token": shape["top_k"], "num_shared_experts": shape["shared"], "num_expert_group": 1,
            "topk_group": 1, "topk_method": "noaux_tc", "use_grouped_topk": True,
            "moe_router_activation_func": "sigmoid", "moe_renormalize": True,
            "routed_scaling_factor": shape["routed_scale"], "moe_intermediate_size": shape["expert_width"],
            "routed_expert_hidden_size": shape["latent"], "latent_moe_use_norm": True,
            "attn_res_block_size": shape["block"], "q_lora_rank": shape["q_rank"], "kv_lora_rank": shape["kv_rank"],
            "qk_nope_head_dim": shape["nope"], "qk_rope_head_dim": shape["rope"], "v_head_dim": shape["v_dim"],
            "mla_use_nope": True, "mla_use_output_gate": True, "num_nextn_predict_layers": 0,
            "max_position_embeddings": 4096, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
            "linear_attn_config": {
                "full_attn_layers": mla,
                "kda_layers": [n for n in range(1, shape["layers"] + 1) if n not in mla],
                "num_heads": shape["kda_heads"], "head_dim": shape["kda_dim"],
                "short_conv_kernel_size": shape["taps"], "gate_lower_bound": -5.0, "use_full_rank_gate": True,
            },
            "quantization_config": {
                "quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized",
                "config_groups": {"group_0": {"format": "mxfp4-pack-quantized", "targets": ["Linear"],
                                              "weights": {"num_bits": 4, "type": "float", "group_size": 32}}},
            },
        },
    }


class Tensors:
    """All tensors of a shape: name -> (dtype, array)."""

    def __init__(self, shape, seed):
        self.shape, self.numbers, self.small = shape, Numbers(seed), shape["small_dtype"]
        self.all = {}
        for layer in range(shape["layers"]):
            self.add_layer(layer)
        hidden = shape["hidden"]
        top = "language_model.model."
        self.add(top + "embed_tokens.weight", "BF16", (shape["vocab"], hidden), -1.5, 1.5)
        self.add(top + "output_attn_res_norm.weight", self.small, (hidden,), 0.5, 1.5)
        self.add(top + "output_attn_res_proj.weight", self.small, (1, hidden), -0.3, 0.3)
        self.add(top + "norm.weight", self.small, (hidden,), 0.5, 1.5)
        self.add("language_model.lm_head.weight", "BF16", (shape["vocab"], hidden), -0.5, 0.5)

    def add(self, name, dtype, shape, low, high):
        self.all[name] = (dtype, self.numbers.uniform(shape, low, high))

    def matrix(self, name, rows, cols):
        reach = 1.7 / np.sqrt(cols)
        self.add(name + ".weight", "BF16", (rows, cols), -reach, reach)

    def add_layer(self, layer):
        s = self.shape
        hidden = s["hidden"]
        at = f"language_model.model.layers.{layer}."
        for name in ("input_layernorm", "post_attention_layernorm", "self_attention_res_norm", "mlp_res_norm"):
            self.add(at + name + ".weight", self.small, (hidden,), 0.5, 1.5)
        for name in ("self_attention_res_proj", "mlp_res_proj"):
            self.add(at + name + ".weight", self.small, (1, hidden), -0.3, 0.3)
        self.add_mla(at + "self_attn.") if layer + 1 in s["mla_layers"] else self.add_kda(at + "self_attn.")
        if layer < s["dense_layers"]:
            self.add_mlp(at + "mlp.", s["dense_width"])
        else:
            self.add_moe(at + "block_sparse_moe.")

    def add_kda(self, at):
        s = self.shape
        width, dim, hidden = s["kda_heads"] * s["kda_dim"], s["kda_dim"], s["hidden"]
        for name in "qkvg":
            self.matrix(at + name + "_proj", width, hidden)
        self.matrix(at + "o_proj", hidden, width)
        for name in "qkv":
            self.add(at + name + "_conv1d.weight", "F32", (width, 1, s["taps"]), -0.6, 0.6)
        self.matrix(at + "f_a_proj", dim, hidden)
        self.matrix(at + "f_b_proj", width, dim)
        self.matrix(at + "b_proj", s["kda_heads"], hidden)
        tail = s["a_log_values"] - s["kda_heads"]
        a_log = np.concatenate([self.numbers.uniform((s["kda_heads"],), -1.0, 1.0), np.zeros(tail, np.float32)])
        self.all[at + "A_log"] = ("F32", a_log)
        self.add(at + "dt_bias", "F32", (width,), -2.0, 1.0)
        self.add(at + "o_norm.weight", "F32", (dim,), 0.5, 1.5)

    def add_mla(self, at):
        s = self.shape
        heads, head = s["mla_heads"], s["nope"] + s["rope"]
        self.matrix(at + "q_a_proj", s["q_rank"], s["hidden"])
        self.add(at + "q_a_layernorm.weight", self.small, (s["q_rank"],), 0.5, 1.5)
        self.matrix(at + "q_b_proj", heads * head, s["q_rank"])
        self.matrix(at + "kv_a_proj_with_mqa", s["kv_rank"] + s["rope"], s["hidden"])
        self.add(at + "kv_a_layernorm.weight", self.small, (s["kv_rank"],), 0.5, 1.5)
        self.matrix(at + "kv_b_proj", heads * (s["nope"] + s["v_dim"]), s["kv_rank"])
        self.matrix(at + "g_proj", heads * s["v_dim"], s["hidden"])
        self.matrix(at + "o_proj", s["hidden"], heads * s["v_dim"])

    def add_mlp(self, at, width):
        self.matrix(at + "gate_proj", width, self.shape["hidden"])
        self.matrix(at + "up_proj", width, self.shape["hidden"])
        self.matrix(at + "down_proj", self.shape["hidden"], width)

    def add_moe(self, at):
        s = self.shape
        self.matrix(at + "gate", s["experts"], s["hidden"])
        self.add(at + "gate.e_score_correction_bias", "F32", (s["experts"],), -0.1, 0.1)
        self.matrix(at + "routed_expert_down_proj", s["latent"], s["hidden"])
        self.matrix(at + "routed_expert_up_proj", s["hidden"], s["latent"])
        self.add(at + "routed_expert_norm.weight", self.small, (s["latent"],), 0.5, 1.5)
        self.add_mlp(at + "shared_experts.", s["shared"] * s["expert_width"])
        for expert in range(s["experts"]):
            for name, rows, cols in (("w1", s["expert_width"], s["latent"]), ("w2", s["latent"], s["expert_width"]),
                                     ("w3", s["expert_width"], s["latent"])):
                base = f"{at}experts.{expert}.{name}"
                self.all[base + ".weight_packed"] = ("U8", self.numbers.bytes((rows, cols // 2), 0, 256))
                self.all[base + ".weight_scale"] = ("U8", self.numbers.bytes((rows, cols // 32), 121, 126))


def stored_bytes(dtype, values):
    if dtype == "U8":
        return values.tobytes()
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    bits = values.astype("<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)  # to nearest, ties to even
    return (rounded >> 16).astype("<u2").tobytes()


def write_shard(path, names, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, bytearray()
    for name in names:
        dtype, values = tensors[name]
        piece = stored_bytes(dtype, values)
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(piece)]}
        data += piece
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def write_checkpoint(case, directory):
    """Writes config.json, the shards and the index of `case` into `directory` (created)."""
    shape = SHAPES[case]
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = Tensors(shape, shape["seed"]).all
    shards = [[] for _ in range(shape["shards"])]
    # Scattered: neighbours in name order land in different shards, so no expert is contiguous.
    for position, name in enumerate(sorted(tensors, key=lambda n: (n[::-1], n))):
        shards[position % len(shards)].append(name)
    index = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):06d}.safetensors"
        write_shard(directory / file, names, tensors)
        index.update(dict.fromkeys(names, file))
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    (directory / "config.json").write_text(json.dumps(nested_config(shape), indent=1))


SHAPES = {
    # Nothing is a multiple of 16 but what MXFP4 demands; MLA first; two MLA layers in a row; 33 experts.
    "odd_widths": dict(
        seed=11, layers=7, hidden=122, vocab=259, kda_heads=3, kda_dim=20, a_log_values=20, taps=4,
        mla_heads=5, q_rank=37, kv_rank=27, nope=13, rope=6, v_dim=11, mla_layers=[1, 4, 5], experts=33, top_k=5,
        shared=2, latent=32, expert_width=96, routed_scale=1.0, dense_layers=1, dense_width=151, block=3,
        small_dtype="BF16", shards=3),
    # Two dense layers, one shared expert, three taps, F32 small tensors, one snapshot only, A_log unpadded.
    "two_dense": dict(
        seed=12, layers=5, hidden=70, vocab=131, kda_heads=1, kda_dim=33, a_log_values=1, taps=3,
        mla_heads=1, q_rank=18, kv_rank=65, nope=7, rope=1, v_dim=40, mla_layers=[2, 5], experts=33, top_k=5,
        shared=1, latent=96, expert_width=32, routed_scale=2.5, dense_layers=2, dense_width=34, block=12,
        small_dtype="F32", shards=4),
    # Every layer a block boundary; every expert chosen; KDA only.
    "all_kda": dict(
        seed=13, layers=3, hidden=48, vocab=100, kda_heads=2, kda_dim=24, a_log_values=24, taps=2,
        mla_heads=2, q_rank=16, kv_rank=16, nope=8, rope=8, v_dim=8, mla_layers=[], experts=3, top_k=3,
        shared=2, latent=64, expert_width=64, routed_scale=1.0, dense_layers=0, dense_width=64, block=1,
        small_dtype="BF16", shards=1),
}


if __name__ == "__main__":
    write_checkpoint(sys.argv[1], sys.argv[2])
