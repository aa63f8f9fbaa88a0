// k3-trunk over real messages, shared memory and files.
#include "services/trunk/trunk_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "common/checkpoint/packed_trunk.h"
#include "tests/unit/support/process.h"
#include "tests/unit/support/service_client.h"
#include "tests/unit/support/temp_dir.h"
#include "tests/unit/support/tiny_checkpoint.h"

namespace k3::trunk {
namespace {

using test::ServiceClient;
using testing::AllOf;
using testing::HasSubstr;

constexpr double kUnitMb = 0.004096;
constexpr double kSlotGb = 4096 / 1e9;

test::TinyOptions scattered_model() {
  test::TinyOptions options;
  options.scattered = true;
  return options;
}

class TrunkServiceTest : public testing::Test {
 protected:
  TrunkServiceTest() { test::write_tiny_checkpoint(checkpoint_, model_); }

  TrunkService::Options options(double slots) const {
    TrunkService::Options options;
    options.run_dir = run_dir_;
    options.model = model_;
    options.trunk_gb = slots * kSlotGb * 1.0001;
    options.unit_mb = kUnitMb;
    options.io_threads = 3;
    return options;
  }

  void start(const TrunkService::Options& options) {
    auto made = TrunkService::create(loop_, options);
    ASSERT_TRUE(made) << made.error().message;
    service_ = std::move(*made);
  }

  std::unique_ptr<ServiceClient> connect() {
    auto client = std::make_unique<ServiceClient>(loop_, run_dir_, "trunk");
    EXPECT_TRUE(client->wait_until_up());
    return client;
  }

  // Walks a whole pass and checks every byte of every tensor.
  void walk(ServiceClient& client, std::uint64_t pass) {
    const auto description = client.ask<ipc::TrunkDescription>(ipc::DescribeTrunk{});
    ASSERT_TRUE(description);
    const std::vector<TrunkTensor> order =
        trunk_order(parse_model_config(description->config, "config").value());
    client.send(ipc::Subscribe{pass, 0, description->units - 1});
    std::vector<std::string> tensors(order.size());
    for (std::uint32_t unit = 0; unit < description->units; ++unit) {
      const auto ready = client.next<ipc::UnitReady>();
      ASSERT_TRUE(ready);
      ASSERT_EQ(ready->pass, pass);
      ASSERT_EQ(ready->unit, unit);
      const std::string bytes = client.bytes(ready->ref);
      for (const ipc::Block& block : ready->blocks) {
        ASSERT_EQ(block.first_row * bytes_per_row(block), tensors.at(block.tensor).size());
        tensors.at(block.tensor) += bytes.substr(block.offset, block.length);
      }
      client.send(ipc::UnitRelease{pass, unit});
    }
    for (std::size_t i = 0; i < order.size(); ++i) {
      // A_log may be padded in the file; its heads come first.
      const std::string expected = checkpoint_.at(order[i].name).data.substr(0, tensors[i].size());
      ASSERT_FALSE(tensors[i].empty()) << order[i].name;
      ASSERT_EQ(tensors[i], expected) << order[i].name;
      if (order[i].role != TrunkRole::kKdaALog) {
        ASSERT_EQ(tensors[i].size(), checkpoint_.at(order[i].name).data.size()) << order[i].name;
      }
    }
  }

  static std::uint64_t bytes_per_row(const ipc::Block& block) { return block.length / block.rows; }

  test::TempDir folder_;
  const std::filesystem::path model_ = folder_.path() / "a model";
  const std::filesystem::path run_dir_ = folder_.path() / "run";
  test::FaultFile faults_{folder_.path() / "faults"};
  test::TinyCheckpoint checkpoint_ = test::make_tiny_checkpoint(scattered_model());
  ipc::EventLoop loop_;
  std::unique_ptr<TrunkService> service_;
};

TEST_F(TrunkServiceTest, DeliversTheShardsByteForByteAtEveryBudget) {
  for (const double slots : {1, 2, 9, 100'000}) {
    start(options(slots));
    const auto client = connect();
    walk(*client, 1);
    walk(*client, 2);
    service_.reset();
  }
}

TEST_F(TrunkServiceTest, DeliversThePackedTrunkByteForByte) {
  const Checkpoint checkpoint = Checkpoint::open(model_, {}).value();
  std::filesystem::create_directories(folder_.path() / "packed");
  ASSERT_TRUE(write_packed_trunk(checkpoint, folder_.path() / "packed", 4096, PackAs::kRaw, [](auto, auto) {}));
  TrunkService::Options packed = options(3);
  packed.packed_trunk = folder_.path() / "packed";
  start(packed);
  const auto client = connect();
  walk(*client, 1);
}

// C27
TEST_F(TrunkServiceTest, CountsTheBytesOfEachPassExactly) {
  start(options(9));  // 4 slots of ring, 5 pinned units
  const auto client = connect();
  const auto description = client->ask<ipc::TrunkDescription>(ipc::DescribeTrunk{});
  ASSERT_TRUE(description);
  ASSERT_EQ(description->slots, 9u);
  ASSERT_GT(description->units, 9u);
  EXPECT_EQ(client->counter("pinned_units"), 5u);
  EXPECT_EQ(client->counter("arena_bytes"), 9u * 4096);
  for (std::uint64_t pass = 1; pass <= 3; ++pass) {
    walk(*client, pass);
    // Read-ahead for the next pass has come to rest when all unpinned slots hold its first units.
    const std::uint64_t settled = 5 + 4 + pass * (description->units - 5);
    ASSERT_TRUE(test::run_until(loop_, [&] { return client->counter("reads") >= settled; }));
    EXPECT_EQ(client->counter("reads"), settled);
  }
  EXPECT_EQ(client->counter("units_delivered"), 3u * description->units);
  EXPECT_EQ(client->counter("units_reused"), 2u * 5);
}

TEST_F(TrunkServiceTest, ReadsWhatFitsOnceAltogether) {
  start(options(100'000));
  const auto client = connect();
  const auto description = client->ask<ipc::TrunkDescription>(ipc::DescribeTrunk{});
  ASSERT_TRUE(description);
  EXPECT_EQ(description->slots, description->units);
  for (std::uint64_t pass = 1; pass <= 3; ++pass) walk(*client, pass);
  EXPECT_EQ(client->counter("bytes_read"), description->pass_bytes);
  EXPECT_EQ(client->counter("read_errors"), 0u);
}

TEST_F(TrunkServiceTest, ServesEmbeddingRows) {
  start(options(1));
  const auto client = connect();
  const std::string& table = checkpoint_.at(kEmbeddingName).data;
  const std::size_t row_bytes = table.size() / 96;
  const std::vector<std::int32_t> ids = {95, 0, 17, 95};
  const auto rows = client->ask<ipc::Rows>(ipc::RowsRequest{ids});
  ASSERT_TRUE(rows);
  EXPECT_EQ(rows->row_bytes, row_bytes);
  std::string expected;
  for (const std::int32_t id : ids) expected += table.substr(id * row_bytes, row_bytes);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(rows->data.data()), rows->data.size()),
            expected);
  EXPECT_EQ(client->counter("rows_read"), 4u);
}

TEST_F(TrunkServiceTest, ARowThatCannotBeReadIsNamed) {
  start(options(1));
  const auto client = connect();
  faults_.set("error embedding row of token 17");
  const auto error = client->ask<ipc::ErrorReply>(ipc::RowsRequest{{3, 17}});
  ASSERT_TRUE(error);
  EXPECT_EQ(error->error.code, ErrorCode::kWeights);
  EXPECT_THAT(error->error.message, HasSubstr("token 17"));
  faults_.clear();
  EXPECT_TRUE(client->ask<ipc::Rows>(ipc::RowsRequest{{3, 17}}));
  const auto outside = client->ask<ipc::ErrorReply>(ipc::RowsRequest{{96}});
  ASSERT_TRUE(outside);
  EXPECT_EQ(outside->error.code, ErrorCode::kUsage);
  EXPECT_THAT(outside->error.message, AllOf(HasSubstr("96"), HasSubstr("0..95")));
}

TEST_F(TrunkServiceTest, AUnitThatCannotBeReadEndsItsPassOnly) {
  faults_.set("error unit 3 (");
  start(options(2));
  const auto client = connect();
  client->send(ipc::Subscribe{1, 2, 5});
  ASSERT_TRUE(client->next<ipc::UnitReady>());
  client->send(ipc::UnitRelease{1, 2});
  const auto failed = client->next<ipc::UnitFailed>();
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->unit, 3u);
  EXPECT_EQ(failed->error.code, ErrorCode::kWeights);
  EXPECT_THAT(failed->error.message,
              AllOf(HasSubstr("unit 3"), HasSubstr("language_model."), HasSubstr(".safetensors")));
  faults_.clear();
  walk(*client, 2);
}

TEST_F(TrunkServiceTest, RefusesWhatItDoesNotServe) {
  start(options(1));
  const auto client = connect();
  for (const ipc::Message& request : std::initializer_list<ipc::Message>{
           ipc::Subscribe{1, 0, 100'000}, ipc::Subscribe{1, 2, 1}, ipc::RowsRequest{},
           ipc::DescribeExperts{}, ipc::Fetch{1, 1, {0}, 0}}) {
    const auto error = client->ask<ipc::ErrorReply>(request);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->error.code, ErrorCode::kUsage);
  }
  client->send(ipc::UnitRelease{7, 7});  // unknown: ignored
  walk(*client, 1);
}

TEST_F(TrunkServiceTest, ADeadClientFreesTheOnlySlot) {
  start(options(1));
  auto holder = connect();
  holder->send(ipc::Subscribe{1, 0, 3});
  ASSERT_TRUE(holder->next<ipc::UnitReady>());
  const auto client = connect();
  client->send(ipc::Subscribe{1, 2, 2});
  holder.reset();
  const auto ready = client->next<ipc::UnitReady>();
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->unit, 2u);
}

TEST_F(TrunkServiceTest, ARestartIsANewGeneration) {
  start(options(2));
  const auto client = connect();
  client->send(ipc::Subscribe{1, 0, 3});
  const auto before = client->next<ipc::UnitReady>();
  ASSERT_TRUE(before);
  service_.reset();
  ASSERT_TRUE(test::run_until(loop_, [&] { return !(*client)->up(); }));
  start(options(2));
  ASSERT_TRUE(client->wait_until_up());
  const auto stale = (*client)->resolve(before->ref);
  ASSERT_FALSE(stale);
  EXPECT_EQ(stale.error().code, ErrorCode::kUnavailable);
}

TEST_F(TrunkServiceTest, RefusesABudgetBelowOneUnit) {
  const auto service = TrunkService::create(loop_, options(0.5));
  ASSERT_FALSE(service);
  EXPECT_EQ(service.error().code, ErrorCode::kUsage);
  EXPECT_THAT(service.error().message, HasSubstr("4096"));
}

TEST_F(TrunkServiceTest, TheBinaryStopsOnSigtermWithReadsInFlight) {
  faults_.set("delay 50 unit");
  test::Process process(K3_TRUNK_BINARY,
                        {"--run", run_dir_.string(), "--model", model_.string(), "--trunk-gb",
                         "0.00001", "--unit-mb", "0.004096", "--log-level", "warn"});
  const auto client = connect();
  client->send(ipc::Subscribe{1, 0, 3});
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(run_dir_ / "trunk.zmq"));
}

TEST_F(TrunkServiceTest, TheBinaryRefusesAnUnusableBudget) {
  for (const char* budget : {"-1", "0", "nan", "0.000001"}) {
    test::Process process(K3_TRUNK_BINARY, {"--run", run_dir_.string(), "--model", model_.string(),
                                            "--trunk-gb", budget, "--log-level", "error"});
    EXPECT_EQ(process.wait(), 2) << budget;
  }
}

}  // namespace
}  // namespace k3::trunk
