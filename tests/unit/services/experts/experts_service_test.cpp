// k3-experts over real messages, shared memory and files.
#include "services/experts/experts_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "common/checkpoint/work_folder.h"
#include "tests/unit/support/process.h"
#include "tests/unit/support/service_client.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::experts {
namespace {

using test::ServiceClient;
using testing::AllOf;
using testing::HasSubstr;

// 12 experts of 3 matrices of 32 x 64 in layers 1, 2 and 3.
constexpr std::uint32_t kExperts = 12;
constexpr std::uint64_t kExpertBytes = 3 * (32 * 64 / 2 + 32 * 64 / 32);
constexpr double kSlotGb = kExpertBytes / 1e9;

test::TinyOptions scattered_model() {
  test::TinyOptions options;
  options.scattered = true;
  return options;
}

class ExpertsServiceTest : public testing::Test {
 protected:
  ExpertsServiceTest() { test::write_tiny_checkpoint(checkpoint_, model_); }

  void write_index(bool checksums, std::optional<int> layers = {}) {
    const Checkpoint checkpoint = Checkpoint::open(model_, {layers}).value();
    const ExpertIndex index = build_expert_index(checkpoint, checksums, [](auto, auto) {}).value();
    const std::filesystem::path folder = work_folder(work_, checkpoint);
    std::filesystem::create_directories(folder);
    ASSERT_TRUE(write_expert_index(index, folder));
  }

  ExpertsService::Options options(double slots) const {
    ExpertsService::Options options;
    options.run_dir = run_dir_;
    options.model = model_;
    options.work = work_;
    options.cache_gb = slots * kSlotGb * 1.0001;
    options.io_threads = 3;
    return options;
  }

  void start(double slots) {
    auto made = ExpertsService::create(loop_, options(slots));
    ASSERT_TRUE(made) << made.error().message;
    service_ = std::move(*made);
  }

  std::unique_ptr<ServiceClient> connect() {
    auto client = std::make_unique<ServiceClient>(loop_, run_dir_, "experts");
    EXPECT_TRUE(client->wait_until_up());
    return client;
  }

  // The bytes of one expert, from the tensors the checkpoint was written from.
  std::string expected(std::uint32_t layer, std::uint32_t expert) {
    std::string bytes;
    for (const char* part : {"w1.weight_packed", "w1.weight_scale", "w2.weight_packed",
                             "w2.weight_scale", "w3.weight_packed", "w3.weight_scale"}) {
      bytes += checkpoint_
                   .at(fmt::format("language_model.model.layers.{}.block_sparse_moe.experts.{}.{}",
                                   layer, expert, part))
                   .data;
    }
    return bytes;
  }

  // Waits until `count` experts of a batch have come, each once, and checks their bytes.
  std::map<std::uint32_t, ipc::ArrivedExpert> receive(ServiceClient& client, std::uint64_t batch,
                                                      std::uint32_t layer, std::size_t count) {
    std::map<std::uint32_t, ipc::ArrivedExpert> arrived;
    while (arrived.size() < count) {
      const auto message = client.next<ipc::Arrived>();
      if (!message) break;
      EXPECT_EQ(message->batch, batch);
      for (const ipc::ArrivedExpert& expert : message->experts) {
        EXPECT_TRUE(arrived.emplace(expert.expert, expert).second);
        std::string bytes;
        for (const ipc::Ref& part : expert.parts) bytes += client.bytes(part);
        EXPECT_TRUE(bytes == expected(layer, expert.expert))
            << "layer " << layer << " expert " << expert.expert;
      }
    }
    return arrived;
  }

  test::TempDir folder_;
  const std::filesystem::path model_ = folder_.path() / "a model";
  const std::filesystem::path work_ = folder_.path() / "work";
  const std::filesystem::path run_dir_ = folder_.path() / "run";
  test::FaultFile faults_{folder_.path() / "faults"};
  test::TinyCheckpoint checkpoint_ = test::make_tiny_checkpoint(scattered_model());
  ipc::EventLoop loop_;
  std::unique_ptr<ExpertsService> service_;
};

TEST_F(ExpertsServiceTest, DeliversEveryExpertByteForByte) {
  write_index(true);
  for (const double slots : {3, 20, 1000}) {
    start(slots);
    const auto client = connect();
    std::uint64_t batch = 0;
    for (int round = 0; round < 2; ++round) {
      for (std::uint32_t layer = 1; layer < 4; ++layer) {
        for (std::uint32_t expert = 0; expert < kExperts; expert += 3) {
          client->send(ipc::Fetch{++batch, layer, {expert + 2, expert, expert + 1}, 0});
          receive(*client, batch, layer, 3);
          client->send(ipc::BatchRelease{batch});
        }
      }
    }
    EXPECT_EQ(client->counter("hits") + client->counter("misses"), 2u * 3 * kExperts);
    EXPECT_EQ(client->counter("bytes_read"), client->counter("misses") * kExpertBytes);
    if (slots == 1000) {
      EXPECT_EQ(client->counter("misses"), 3u * kExperts);
    }
    EXPECT_EQ(client->counter("leases_now"), 0u);
    service_.reset();
  }
}

TEST_F(ExpertsServiceTest, DescribesItself) {
  write_index(false);
  start(5);
  const auto client = connect();
  const auto description = client->ask<ipc::ExpertsDescription>(ipc::DescribeExperts{});
  ASSERT_TRUE(description);
  EXPECT_EQ(description->layers, 4u);
  EXPECT_EQ(description->experts, kExperts);
  EXPECT_EQ(description->slots, 5u);
  EXPECT_EQ(description->expert_bytes, kExpertBytes);
  EXPECT_EQ(description->arena_bytes, 5 * kExpertBytes);  // already a multiple of 64
}

TEST_F(ExpertsServiceTest, TellsPrefetchedFromHitAndMiss) {
  write_index(false);
  start(10);
  const auto client = connect();
  client->send(ipc::Hint{2, {1}});
  client->send(ipc::Fetch{1, 2, {1, 2}, 0});
  auto first = receive(*client, 1, 2, 2);
  EXPECT_EQ(first[1].source, ipc::ExpertOrigin::kPrefetched);
  EXPECT_EQ(first[2].source, ipc::ExpertOrigin::kMiss);
  client->send(ipc::Fetch{2, 2, {1}, 0});
  EXPECT_EQ(receive(*client, 2, 2, 1)[1].source, ipc::ExpertOrigin::kHit);
  EXPECT_EQ(client->counter("prefetched_hits"), 1u);
}

// C25
TEST_F(ExpertsServiceTest, AnExpertThatCannotBeReadFailsByNameAndAlone) {
  write_index(true);
  start(10);
  const auto client = connect();
  for (const char* fault : {"error layer 2 expert 7", "corrupt layer 2 expert 7"}) {
    const std::uint64_t batch = client->counter("fetches") + 1;
    faults_.set(fault);
    client->send(ipc::Fetch{batch, 2, {7}, 0});
    const auto failed = client->next<ipc::ExpertFailed>();
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->batch, batch);
    EXPECT_EQ(failed->layer, 2u);
    EXPECT_EQ(failed->expert, 7u);
    EXPECT_EQ(failed->error.code, ErrorCode::kWeights);
    EXPECT_THAT(failed->error.message,
                AllOf(HasSubstr("layer 2 expert 7"), HasSubstr(".safetensors")));
    client->send(ipc::Fetch{batch + 1, 2, {1, 3}, 0});
    receive(*client, batch + 1, 2, 2);
    client->send(ipc::BatchRelease{batch});
    client->send(ipc::BatchRelease{batch + 1});
  }
  faults_.clear();
  client->send(ipc::Fetch{100, 2, {7}, 0});
  EXPECT_EQ(receive(*client, 100, 2, 1)[7].source, ipc::ExpertOrigin::kMiss);
  EXPECT_EQ(client->counter("read_errors"), 2u);
}

TEST_F(ExpertsServiceTest, RefusesWhatItDoesNotServe) {
  write_index(false);
  start(3);
  const auto client = connect();
  std::vector<std::uint32_t> four(4);
  std::iota(four.begin(), four.end(), 0u);
  for (const ipc::Message& request : std::initializer_list<ipc::Message>{
           ipc::Fetch{1, 1, four, 0}, ipc::Fetch{1, 0, {1}, 0}, ipc::Fetch{1, 4, {1}, 0},
           ipc::Fetch{1, 1, {12}, 0}, ipc::Fetch{1, 1, {2, 2}, 0}, ipc::Hint{0, {1}},
           ipc::DescribeTrunk{}, ipc::Subscribe{1, 0, 0}}) {
    const auto error = client->ask<ipc::ErrorReply>(request);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error.code, ErrorCode::kUsage);
  }
  client->send(ipc::BatchRelease{77});  // unknown: ignored
  client->send(ipc::Fetch{1, 1, {0, 1, 2}, 0});
  receive(*client, 1, 1, 3);
}

TEST_F(ExpertsServiceTest, ADeadClientFreesItsSlots) {
  write_index(false);
  start(3);
  auto holder = connect();
  holder->send(ipc::Fetch{1, 1, {0, 1, 2}, 0});
  receive(*holder, 1, 1, 3);
  const auto client = connect();
  client->send(ipc::Fetch{1, 3, {9, 10, 11}, 0});
  EXPECT_EQ(client->counter("fetches_waiting"), 1u);
  holder.reset();
  receive(*client, 1, 3, 3);
  EXPECT_EQ(client->counter("leases_now"), 3u);
}

TEST_F(ExpertsServiceTest, ARestartIsANewGeneration) {
  write_index(false);
  start(3);
  const auto client = connect();
  client->send(ipc::Fetch{1, 1, {0}, 0});
  const ipc::Ref before = receive(*client, 1, 1, 1)[0].parts.front();
  service_.reset();
  ASSERT_TRUE(test::run_until(loop_, [&] { return !(*client)->up(); }));
  start(3);
  ASSERT_TRUE(client->wait_until_up());
  const auto stale = (*client)->resolve(before);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kUnavailable);
  client->send(ipc::Fetch{1, 1, {0}, 0});
  receive(*client, 1, 1, 1);
}

TEST_F(ExpertsServiceTest, AnAbsentIndexNamesTheCommand) {
  const auto service = ExpertsService::create(loop_, options(3));
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ErrorCode::kUsage);
  EXPECT_THAT(service.error().message, HasSubstr("k3 index --model " + model_.string()));
}

// C13
TEST_F(ExpertsServiceTest, RefusesTheIndexOfAnotherCheckpoint) {
  write_index(false);
  test::TinyOptions other = scattered_model();
  other.seed = 2;
  std::filesystem::remove_all(model_);
  test::write_tiny_checkpoint(other, model_);
  const auto service = ExpertsService::create(loop_, options(3));
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ErrorCode::kWeights);
}

TEST_F(ExpertsServiceTest, RefusesABudgetBelowOneExpert) {
  write_index(false);
  const auto service = ExpertsService::create(loop_, options(0.5));
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ErrorCode::kUsage);
  EXPECT_THAT(service.error().message, HasSubstr(std::to_string(kExpertBytes)));
}

TEST_F(ExpertsServiceTest, ServesTheFirstLayersAlone) {
  write_index(false, 2);
  ExpertsService::Options two = options(3);
  two.layers = 2;
  auto made = ExpertsService::create(loop_, two);
  ASSERT_TRUE(made) << made.error().message;
  service_ = std::move(*made);
  const auto client = connect();
  client->send(ipc::Fetch{1, 1, {4}, 0});
  receive(*client, 1, 1, 1);
  EXPECT_TRUE(client->ask<ipc::ErrorReply>(ipc::Fetch{2, 2, {4}, 0}));
}

TEST_F(ExpertsServiceTest, TheBinaryStopsOnSigtermWithReadsInFlight) {
  write_index(false);
  faults_.set("delay 50 layer");
  test::Process process(K3_EXPERTS_BINARY,
                        {"--run", run_dir_.string(), "--model", model_.string(), "--work",
                         work_.string(), "--cache-gb", "0.001", "--log-level", "warn"});
  const auto client = connect();
  client->send(ipc::Fetch{1, 1, {0, 1, 2}, 0});
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(run_dir_ / "experts.zmq"));
}

TEST_F(ExpertsServiceTest, TheBinaryRefusesAnUnusableBudget) {
  write_index(false);
  for (const char* budget : {"-1", "0", "nan", "0.000000001"}) {
    test::Process process(K3_EXPERTS_BINARY,
                          {"--run", run_dir_.string(), "--model", model_.string(), "--work",
                           work_.string(), "--cache-gb", budget, "--log-level", "error"});
    EXPECT_EQ(process.wait(), 2) << budget;
  }
}

}  // namespace
}  // namespace k3::experts
