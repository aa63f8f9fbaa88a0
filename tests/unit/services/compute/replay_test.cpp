// Replays of recordings: equal on every thread count and table; the first difference is named.
#include "services/compute/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "services/compute/generator.h"
#include "services/compute/recorder.h"
#include "tests/unit/services/compute/local_weights.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::compute::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Replay : public testing::Test {
 protected:
  // Records 16 tokens after a prompt of seven in chunks of five.
  Replay() {
    k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp_.path() / "model");
    LocalModel local(temp_.path() / "model", 1e-6f, 5);
    const auto index = build_expert_index(local.checkpoint, true, [](auto, auto) {}).value();
    EXPECT_TRUE(write_expert_index(index, temp_.path()));
    const RecordedStart start{.fingerprint = local.checkpoint.fingerprint(),
                              .config = local.checkpoint.config_json(),
                              .layers = 4,
                              .model_layers = 4,
                              .mla_norm_eps = 1e-6f,
                              .isa = local.multiplier.table().name,
                              .threads = 1};
    auto recorder = Recorder::create(options_.recording, 10'000'000, start, 96).value();
    local.model->observe(recorder.get());
    Generator generator(*local.model, *local.trunk, *local.experts,
                        {.chunk = 5, .max_positions = 64});
    const ipc::Generate request{.request = 1,
                                .prompt_ids = {3, 7, 11, 5, 9, 60, 41},
                                .max_tokens = 16,
                                .stop_ids = {},
                                .logits = ipc::LogitsWanted::kNone,
                                .recompute = false};
    EXPECT_TRUE(generator.run(request, [](const ipc::Message&) {}));
  }

  // Writes the recording again with bit 3 of one activation of pass 6, layer 2 flipped; the
  // checksums are right.
  void flip_activation(std::size_t element) {
    std::vector<RecordedFrame> frames;
    auto reader = RecordingReader::open(options_.recording).value();
    do {
      frames.push_back(reader.next().value());
    } while (!std::holds_alternative<RecordedEnd>(frames.back()));
    auto writer = RecordingWriter::create(options_.recording).value();
    int pass = -1;
    for (RecordedFrame& frame : frames) {
      if (std::holds_alternative<RecordedPass>(frame)) ++pass;
      auto* layer = std::get_if<RecordedLayer>(&frame);
      if (pass == 6 && layer != nullptr && layer->layer == 2) {
        layer->activations.at(element) ^= 8;
        flipped_ = layer->activations[element];
      }
      ASSERT_TRUE(writer.add(frame));
    }
  }

  k3::test::TempDir temp_;
  ReplayOptions options_{.recording = temp_.path() / "recording",
                         .model = temp_.path() / "model",
                         .work = temp_.path(),
                         .trunk = {},
                         .threads = 1,
                         .isa = "",
                         .json = {}};
  std::uint32_t flipped_ = 0;
};

TEST_F(Replay, IsEqualOnEveryTableAndThreadCount) {
  for (const kernels::KernelTable* table : kernels::supported_tables()) {
    for (const int threads : {1, 2}) {
      options_.isa = table->name;
      options_.threads = threads;
      const Status status = replay(options_);
      EXPECT_TRUE(status) << table->name << " " << threads << ": " << status.error().message;
    }
  }
}

TEST_F(Replay, OneFlippedActivationBitIsNamed) {
  flip_activation(37);
  const Status status = replay(options_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kFailed);
  EXPECT_EQ(status.error().message,
            fmt::format("pass 6 layer 2 row 0 element 37 of the activations: computed 0x{:08x}, "
                        "recorded 0x{:08x}",
                        flipped_ ^ 8, flipped_));
}

TEST_F(Replay, AnotherModelIsRefused) {
  k3::test::write_tiny_checkpoint(k3::test::TinyOptions{.seed = 2}, temp_.path() / "other");
  options_.model = temp_.path() / "other";
  const Status status = replay(options_);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIncompatible);
  EXPECT_THAT(status.error().message, AllOf(HasSubstr("other"), HasSubstr("of model")));
}

}  // namespace
}  // namespace k3::compute::test
