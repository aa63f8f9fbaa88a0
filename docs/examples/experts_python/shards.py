"""Where the experts of a checkpoint lie in its shards."""

import json
import os
import struct

PARTS = [f"{matrix}.{part}" for matrix in ("w1", "w2", "w3") for part in ("weight_packed", "weight_scale")]
PREFIX = "language_model.model."
MOST_FILES = 253  # descriptors that fit in one packet (E3)


class Shards:
    """Opens every shard that holds experts in use. A part is (file number, offset, length)."""

    def __init__(self, model, layers=None):
        config = json.loads((model / "config.json").read_text())
        config = config.get("text_config", config)
        self.layers = layers or config["num_hidden_layers"]
        self.dense_layers = min(config["first_k_dense_replace"], self.layers)
        self.experts = config["num_experts"]
        self.paths, self.files, self.parts = [], [], {}
        places = {}
        for path in sorted(model.glob("*.safetensors")):
            places.update(self._read_header(path))
        numbers = {}
        for layer in range(self.dense_layers, self.layers):
            for expert in range(self.experts):
                name = f"{PREFIX}layers.{layer}.block_sparse_moe.experts.{expert}."
                found = [places.get(name + part) for part in PARTS]
                if None in found:
                    raise SystemExit(f"{model}: layer {layer} expert {expert}: a tensor is missing")
                self.parts[layer, expert] = [(self._number(numbers, path), at, length) for path, at, length in found]
        if len(self.files) > MOST_FILES:
            raise SystemExit(f"{model}: {len(self.files)} shards hold experts, at most {MOST_FILES} can be handed over")
        self.expert_bytes = sum(length for _, _, length in next(iter(self.parts.values()), ()))

    @staticmethod
    def _read_header(path):
        """Name and place of every tensor: 8 bytes of length, then JSON, then the data the offsets count from."""
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        for name, tensor in header.items():
            begin, end = tensor["data_offsets"]
            yield name, (path, 8 + length + begin, end - begin)

    def _number(self, numbers, path):
        if path not in numbers:
            numbers[path] = len(self.files)
            self.paths.append(path)
            self.files.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return numbers[path]

    def read(self, layer, expert):
        """Brings an expert into the page cache; OSError that names the file if that fails."""
        for file, at, length in self.parts[layer, expert]:
            while length > 0:
                try:
                    got = len(os.pread(self.files[file], length, at))
                except OSError as error:
                    raise OSError(f"{self.paths[file]}: {length} bytes at {at}: {error.strerror}") from error
                if got == 0:
                    raise OSError(f"{self.paths[file]}: ends before {length} bytes at {at}")
                at, length = at + got, length - got
