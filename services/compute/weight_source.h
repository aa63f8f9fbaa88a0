// Where the model's weights come from: the trunk in order of use, routed experts as they arrive.
// The model runs over these interfaces; remote_trunk.h and remote_experts.h serve them from the
// pipeline's weight services, tests from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "common/base/result.h"
#include "common/kernels/matrix.h"

namespace k3::compute {

// Lets the rest of the process live for a moment (messages, deaths, signals): waits until something
// happened or a short limit passed. An error means that the work in hand must stop now; it is
// handed up unchanged.
using Pump = std::function<Status()>;

// A run of rows of one trunk tensor, as delivered: nothing is checked yet.
struct TrunkBlock {
  std::uint32_t tensor = 0;  // index in the trunk order
  std::uint32_t first_row = 0;
  std::uint32_t rows = 0;
  std::uint8_t encoding = 0;  // TrunkEncoding
  std::span<const std::byte> bytes;
  bool ends_unit = true;  // the last of those whose bytes come and go together
};

// Embedding rows as stored.
struct EmbeddingRows {
  std::uint8_t encoding = 0;  // TrunkEncoding
  std::uint32_t row_bytes = 0;
  std::vector<std::byte> data;  // one row per id asked for
};

// The trunk, block by block in trunk_order. One thread. Errors: kWeights when a weight cannot be
// delivered, kIncompatible when the source changed, whatever the pump returned.
class TrunkReader {
 public:
  virtual ~TrunkReader() = default;

  // Starts a pass over all layers, with the output head when `with_head`. `another_follows` says
  // that the next pass is likely, so that its first units may be read ahead. The previous pass
  // must have been consumed to its end or abandoned.
  virtual Status begin_pass(bool with_head, bool another_follows) = 0;

  // The next block of the pass, waited for. Its bytes stay valid until done() is called for the
  // block that ends its unit, and no longer than the next call of a pump; block() calls none
  // within a unit.
  virtual Result<TrunkBlock> block() = 0;

  // The block last returned has been used: the next block() returns its successor.
  virtual void done() = 0;

  // Gives up the pass in hand and those subscribed ahead.
  virtual void abandon() = 0;

  virtual Result<EmbeddingRows> embedding(std::span<const std::int32_t> ids) = 0;

  // Wall clock spent waiting in all calls so far, and spent on messages besides.
  virtual std::uint64_t waited_ns() const = 0;
  virtual std::uint64_t messaging_ns() const { return 0; }
};

// The three matrices of one routed expert: w1 (gate) and w3 (up) [expert_width, latent], w2 (down)
// [latent, expert_width].
struct ExpertView {
  std::uint32_t expert = 0;
  kernels::Matrix w1, w2, w3;
};

// Routed experts of one layer at a time. One thread. Errors as for TrunkReader.
class ExpertReader {
 public:
  virtual ~ExpertReader() = default;

  // Asks for distinct `experts` of `layer`; returns at once. Any number: a source that cannot hold
  // them all delivers them in rounds. The previous demand must be released.
  virtual Status fetch(int layer, std::span<const std::uint32_t> experts) = 0;

  // One of the experts asked for, in order of arrival, each exactly once. The view is valid until
  // the next call of any pump or method.
  virtual Result<ExpertView> next() = 0;

  // Ends the demand, also one that has not been delivered in full.
  virtual void release() = 0;

  // As for TrunkReader.
  virtual std::uint64_t waited_ns() const = 0;
  virtual std::uint64_t messaging_ns() const { return 0; }
};

}  // namespace k3::compute
