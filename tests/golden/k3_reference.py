"""Kimi K3 in plain numpy, double precision, one position after another where the model is recurrent.

An independent statement of the model to test the product against: it reads any checkpoint in the
released layout and knows nothing of the product's code. Slow on purpose.
"""

import json
import pathlib

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def read_safetensors(path):
    """Name -> array; BF16 widened to float64, U8 kept."""
    raw = pathlib.Path(path).read_bytes()
    header_bytes = int.from_bytes(raw[:8], "little")
    data = raw[8 + header_bytes:]
    tensors = {}
    for name, entry in json.loads(raw[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        piece = data[begin:end]
        if entry["dtype"] == "F32":
            values = np.frombuffer(piece, "<f4").astype(np.float64)
        elif entry["dtype"] == "BF16":
            values = (np.frombuffer(piece, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        else:
            values = np.frombuffer(piece, np.uint8)
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def rms_norm(x, weight, epsilon):
    return weight * x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


def l2_norm(x):
    return x / np.sqrt((x * x).sum(-1, keepdims=True) + 1e-6)


class Config:
    """The numbers of config.json, nested (released) or flat."""

    def __init__(self, path, mla_epsilon):
        root = json.loads(pathlib.Path(path).read_text())
        text = root.get("text_config", root)
        linear = text.get("linear_attn_config")
        nested = linear is not None
        linear = linear if nested else text
        self.layers = text["num_hidden_layers"]
        self.epsilon = text["rms_norm_eps"]
        self.mla_epsilon = mla_epsilon
        self.kda_heads = linear["num_heads" if nested else "kda_num_heads"]
        self.kda_dim = linear["head_dim" if nested else "kda_head_dim"]
        self.lower_bound = linear["gate_lower_bound"]
        self.mla_layers = {number - 1 for number in linear["full_attn_layers"]}
        self.mla_heads = text["num_attention_heads"]
        self.nope, self.rope = text["qk_nope_head_dim"], text["qk_rope_head_dim"]
        self.v_dim, self.kv_rank = text["v_head_dim"], text["kv_lora_rank"]
        self.top_k = text["num_experts_per_token"]
        self.routed_scale = text["routed_scaling_factor"]
        self.dense_layers = text["first_k_dense_replace"]
        self.block = text["attn_res_block_size"]
        prefix = "activation_" if nested else ""
        self.beta = text[prefix + "situ_beta"]
        self.linear_beta = text[prefix + "situ_linear_beta"]


class Model:
    """Forward passes over whole sequences; logits of every position."""

    def __init__(self, directory, mla_epsilon=1e-6):
        directory = pathlib.Path(directory)
        self.config = Config(directory / "config.json", mla_epsilon)
        self.tensors = {}
        for shard in sorted(directory.glob("*.safetensors")):
            self.tensors.update(read_safetensors(shard))
        self.routing = {}  # layer -> [positions][top_k] experts of the last forward pass, best first

    def weight(self, name):
        return self.tensors["language_model.model." + name]

    def linear(self, name, x):
        return x @ self.weight(name + ".weight").T

    def forward(self, ids):
        c = self.config
        prefix = self.weight("embed_tokens.weight")[ids]
        blocks = []
        for layer in range(c.layers):
            at = f"layers.{layer}."
            h = self.residual_attention(blocks + [prefix], at + "self_attention_res") if blocks else prefix
            if layer % c.block == 0:
                blocks.append(prefix)
                prefix = None
            h = rms_norm(h, self.weight(at + "input_layernorm.weight"), c.epsilon)
            attended = self.mla(at + "self_attn.", h) if layer in c.mla_layers else self.kda(at + "self_attn.", h)
            prefix = attended if prefix is None else prefix + attended
            h = self.residual_attention(blocks + [prefix], at + "mlp_res")
            h = rms_norm(h, self.weight(at + "post_attention_layernorm.weight"), c.epsilon)
            dense = layer < c.dense_layers
            prefix = prefix + (self.mlp(at + "mlp.", h) if dense else self.moe(layer, h))
        h = self.residual_attention(blocks + [prefix], "output_attn_res")
        h = rms_norm(h, self.weight("norm.weight"), c.epsilon)
        return h @ self.tensors["language_model.lm_head.weight"].T

    def residual_attention(self, sources, name):
        fold = self.weight(name + "_norm.weight") * self.weight(name + "_proj.weight").reshape(-1)
        stacked = np.stack(sources, axis=1)  # [positions, sources, hidden]
        scale = np.sqrt((stacked * stacked).mean(-1, keepdims=True) + self.config.epsilon)
        weights = softmax((stacked / scale) @ fold)
        return np.einsum("ps,psh->ph", weights, stacked)

    def kda(self, at, x):
        c = self.config
        heads, dim, positions = c.kda_heads, c.kda_dim, len(x)
        q, k, v = (self.convolution(at + which, x).reshape(positions, heads, dim) for which in "qkv")
        q, k = l2_norm(q) / np.sqrt(dim), l2_norm(k)
        beta = sigmoid(self.linear(at + "b_proj", x))
        z = self.linear(at + "f_b_proj", self.linear(at + "f_a_proj", x)) + self.weight(at + "dt_bias")
        rate = np.exp(self.weight(at + "A_log")[:heads])[:, None]
        decay = np.exp(c.lower_bound * sigmoid(rate * z.reshape(positions, heads, dim)))
        state = np.zeros((heads, dim, dim))
        outputs = np.empty((positions, heads, dim))
        for t in range(positions):
            for h in range(heads):
                state[h] *= decay[t, h][:, None]
                error = v[t, h] - k[t, h] @ state[h]
                state[h] += np.outer(k[t, h], beta[t, h] * error)
                outputs[t, h] = q[t, h] @ state[h]
        y = rms_norm(outputs, self.weight(at + "o_norm.weight"), c.epsilon).reshape(positions, -1)
        return self.linear(at + "o_proj", y * sigmoid(self.linear(at + "g_proj", x)))

    def convolution(self, name, x):
        projected = self.linear(name + "_proj", x)
        taps = self.weight(name + "_conv1d.weight")[:, 0, :]
        mixed = np.zeros_like(projected)
        for t in range(len(x)):
            for tap in range(taps.shape[1]):
                source = t - (taps.shape[1] - 1) + tap
                if source >= 0:
                    mixed[t] += taps[:, tap] * projected[source]
        return mixed * sigmoid(mixed)

    def mla(self, at, x):
        c = self.config
        positions, head = len(x), c.nope + c.rope
        low = rms_norm(self.linear(at + "q_a_proj", x), self.weight(at + "q_a_layernorm.weight"), c.mla_epsilon)
        q = self.linear(at + "q_b_proj", low).reshape(positions, c.mla_heads, head)
        joint = self.linear(at + "kv_a_proj_with_mqa", x)
        latent = rms_norm(joint[:, :c.kv_rank], self.weight(at + "kv_a_layernorm.weight"), c.mla_epsilon)
        shared_key = joint[:, c.kv_rank:]
        kv = self.linear(at + "kv_b_proj", latent).reshape(positions, c.mla_heads, c.nope + c.v_dim)
        y = np.empty((positions, c.mla_heads, c.v_dim))
        for t in range(positions):
            for h in range(c.mla_heads):
                scores = kv[:t + 1, h, :c.nope] @ q[t, h, :c.nope] + shared_key[:t + 1] @ q[t, h, c.nope:]
                y[t, h] = softmax(scores / np.sqrt(head)) @ kv[:t + 1, h, c.nope:]
        gated = y.reshape(positions, -1) * sigmoid(self.linear(at + "g_proj", x))
        return self.linear(at + "o_proj", gated)

    def situ(self, gate, up):
        c = self.config
        return c.beta * np.tanh(gate / c.beta) * sigmoid(gate) * c.linear_beta * np.tanh(up / c.linear_beta)

    def mlp(self, at, x):
        return self.linear(at + "down_proj", self.situ(self.linear(at + "gate_proj", x), self.linear(at + "up_proj", x)))

    def expert_matrix(self, name):
        packed, scale = self.weight(name + ".weight_packed"), self.weight(name + ".weight_scale")
        values = np.empty((packed.shape[0], packed.shape[1] * 2))
        values[:, 0::2] = E2M1[packed & 15]
        values[:, 1::2] = E2M1[packed >> 4]
        return values * np.repeat(np.exp2(scale.astype(np.float64) - 127), 32, axis=1)

    def moe(self, layer, x):
        c = self.config
        at = f"layers.{layer}.block_sparse_moe."
        scores = sigmoid(self.linear(at + "gate", x))
        biased = scores + self.weight(at + "gate.e_score_correction_bias")
        latent = self.linear(at + "routed_expert_down_proj", x)
        routed = np.zeros_like(latent)
        self.routing[layer] = []
        for t in range(len(x)):
            chosen = np.argsort(-biased[t], kind="stable")[:c.top_k]
            self.routing[layer].append([int(e) for e in chosen])
            weights = scores[t, chosen] / (scores[t, chosen].sum() + 1e-20) * c.routed_scale
            for expert, weight in zip(chosen, weights):
                w1, w2, w3 = (self.expert_matrix(f"{at}experts.{expert}.{name}") for name in ("w1", "w2", "w3"))
                routed[t] += weight * (w2 @ self.situ(w1 @ latent[t], w3 @ latent[t]))
        routed = rms_norm(routed, self.weight(at + "routed_expert_norm.weight"), c.epsilon)
        return self.linear(at + "routed_expert_up_proj", routed) + self.mlp(at + "shared_experts.", x)


def generate(model, prompt_ids, count):
    """Greedy ids, all logits of the final pass's positions, and the smallest top-1/top-2 margin."""
    ids, margin = list(prompt_ids), np.inf
    for _ in range(count):
        last = model.forward(ids)[-1]
        order = np.argsort(-last, kind="stable")
        margin = min(margin, last[order[0]] - last[order[1]])
        ids.append(int(order[0]))
    return ids[len(prompt_ids):], model.forward(ids), float(margin)
