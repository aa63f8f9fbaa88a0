// The compute process over real messages: queueing, cancelling, dying clients, questions, errors.
#include "services/compute/compute_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <fstream>
#include <variant>

#include "common/ipc/client.h"
#include "services/compute/cpus.h"
#include "tests/unit/services/compute/weight_services.h"
#include "tests/unit/support/service_client.h"

namespace k3::compute::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ipc::Generate request(std::uint64_t number, std::uint32_t tokens) {
  return {.request = number,
          .prompt_ids = {3, 7, 11, 5, 9, 60, 41},
          .max_tokens = tokens,
          .stop_ids = {},
          .logits = ipc::LogitsWanted::kNone,
          .recompute = false};
}

// A client of the compute service in the same loop; everything it hears, in order.
class TestClient {
 public:
  explicit TestClient(WeightServices& services) {
    client_ = std::move(
        ipc::Client::create(services.loop, services.run_dir(), {"compute", "test", ""},
                            {[this](const ipc::Welcome&) { on_up(); },
                             [this](const ipc::Envelope& envelope) { hear(envelope); }, [] {}})
            .value());
  }

  // Sent when the connection is up, or now.
  void send(const ipc::Message& message) {
    if (client_->up()) {
      ASSERT_TRUE(client_->send(message));
    } else {
      unsent_.push_back(message);
    }
  }

  template <class T>
  std::vector<T> all() const {
    std::vector<T> found;
    for (const ipc::Message& message : heard) {
      if (const T* body = std::get_if<T>(&message)) found.push_back(*body);
    }
    return found;
  }
  std::vector<std::int32_t> ids(std::uint64_t request_number) const {
    std::vector<std::int32_t> found;
    for (const ipc::Token& token : all<ipc::Token>()) {
      if (token.request == request_number) found.push_back(token.id);
    }
    return found;
  }

  std::function<void(const ipc::Message&)> on_message = [](const ipc::Message&) {};
  std::vector<ipc::Message> heard;

 private:
  void on_up() {
    for (const ipc::Message& message : std::exchange(unsent_, {})) {
      ASSERT_TRUE(client_->send(message));
    }
  }
  void hear(const ipc::Envelope& envelope) {
    heard.push_back(envelope.body);
    on_message(envelope.body);
  }

  std::vector<ipc::Message> unsent_;
  std::unique_ptr<ipc::Client> client_;
};

class ComputeServiceTest : public testing::Test {
 protected:
  ComputeServiceTest() {
    k3::test::write_tiny_checkpoint(k3::test::TinyOptions{}, temp_.path() / "model");
    services_.emplace(temp_.path() / "model");
    services_->start({});
  }

  void create(ComputeService::Options options = {}) {
    options.run_dir = services_->run_dir();
    options.threads = 1;
    auto made = ComputeService::create(services_->loop, options);
    ASSERT_TRUE(made) << made.error().message;
    service_ = std::move(*made);
  }

  // Serves until `done`, looked at every millisecond of the loop.
  void serve_until(std::function<bool()> done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::minutes(2);
    services_->loop.every(std::chrono::milliseconds(1), [this, done, limit] {
      if (done() || std::chrono::steady_clock::now() > limit) services_->loop.stop();
    });
    const Status status = service_->run();
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_TRUE(done()) << "gave up";
  }

  k3::test::TempDir temp_;
  std::optional<WeightServices> services_;
  std::unique_ptr<ComputeService> service_;
};

TEST_F(ComputeServiceTest, ServesClientsInTurnAndAnswersQuestionsMeanwhile) {
  create();
  TestClient first(*services_);
  TestClient second(*services_);
  first.send(request(1, 5));
  second.send(request(2, 5));
  bool asked = false;
  first.on_message = [&](const ipc::Message& message) {
    if (!std::holds_alternative<ipc::Token>(message) || std::exchange(asked, true)) return;
    second.send(ipc::DescribeCompute{});
    second.send(ipc::StatsRequest{});
  };
  serve_until(
      [&] { return !first.all<ipc::Finished>().empty() && !second.all<ipc::Finished>().empty(); });
  EXPECT_EQ(first.ids(1).size(), 5u);
  EXPECT_EQ(first.ids(1), second.ids(2));
  const auto described = second.all<ipc::ComputeDescription>();
  ASSERT_EQ(described.size(), 1u);
  EXPECT_EQ(described[0].layers, 4u);
  EXPECT_EQ(described[0].vocab, 96u);
  EXPECT_EQ(described[0].threads, 1u);
  EXPECT_GT(described[0].planned_bytes, 0u);
  EXPECT_EQ(second.all<ipc::Stats>().size(), 1u);
}

TEST_F(ComputeServiceTest, RefusesASequenceThatDoesNotFitInMemory) {
  ComputeService::Options options;
  options.run_dir = services_->run_dir();
  options.chunk = std::size_t{1} << 32;
  const auto made = ComputeService::create(services_->loop, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kFailed);
  EXPECT_THAT(made.error().message, testing::HasSubstr("not enough memory"));
}

TEST_F(ComputeServiceTest, CancelsRunningAndQueuedRequests) {
  create();
  TestClient client(*services_);
  client.send(request(1, 1000));
  client.send(request(2, 1000));
  client.send(request(3, 3));
  bool cancelled = false;
  client.on_message = [&](const ipc::Message& message) {
    if (!std::holds_alternative<ipc::Token>(message) || std::exchange(cancelled, true)) return;
    client.send(ipc::Cancel{2});
    client.send(ipc::Cancel{1});
  };
  serve_until([&] { return client.all<ipc::Finished>().size() == 3; });
  const auto finished = client.all<ipc::Finished>();
  EXPECT_EQ(finished[0].request, 2u);
  EXPECT_EQ(finished[0].reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(finished[1].request, 1u);
  EXPECT_EQ(finished[1].reason, ipc::FinishReason::kCancelled);
  EXPECT_EQ(finished[2].reason, ipc::FinishReason::kLength);
  EXPECT_LT(client.ids(1).size(), 1000u);
  EXPECT_TRUE(client.ids(2).empty());
  EXPECT_EQ(client.ids(3).size(), 3u);
}

// C51: its generation ends and the next client is served.
TEST_F(ComputeServiceTest, DeadClientsGenerationEnds) {
  create();
  auto dying = std::make_unique<TestClient>(*services_);
  TestClient living(*services_);
  dying->send(request(1, 3000));
  bool generating = false;
  dying->on_message = [&](const ipc::Message& message) {
    if (std::holds_alternative<ipc::Token>(message)) generating = true;
  };
  serve_until([&] {
    if (generating && dying) {
      dying.reset();
      living.send(request(2, 3));
    }
    return !living.all<ipc::Finished>().empty();
  });
  EXPECT_EQ(living.ids(2).size(), 3u);
}

TEST_F(ComputeServiceTest, RefusesBadRequestsAndGoesOn) {
  ComputeService::Options options;
  options.max_positions = 20;
  create(options);
  TestClient client(*services_);
  client.send(request(1, 14));  // 7 + 14 > 20
  ipc::Generate outside = request(2, 1);
  outside.prompt_ids = {96};
  client.send(outside);
  client.send(request(3, 13));
  serve_until([&] { return !client.all<ipc::Finished>().empty(); });
  const auto errors = client.all<ipc::ErrorReply>();
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].error.code, ErrorCode::kUsage);
  EXPECT_THAT(errors[0].error.message, AllOf(HasSubstr("21"), HasSubstr("20")));
  EXPECT_THAT(errors[1].error.message, HasSubstr("96"));
  EXPECT_EQ(client.ids(3).size(), 13u);
}

TEST_F(ComputeServiceTest, FailedRequestIsAnsweredAndTheNextOneWorks) {
  k3::test::FaultFile faults(temp_.path() / "faults");
  services_->start({});
  create();
  faults.set("error layer 2 expert");
  TestClient client(*services_);
  client.send(request(1, 3));
  client.on_message = [&](const ipc::Message& message) {
    if (!std::holds_alternative<ipc::ErrorReply>(message)) return;
    faults.clear();
    client.send(request(2, 3));
  };
  serve_until([&] { return !client.all<ipc::Finished>().empty(); });
  const auto errors = client.all<ipc::ErrorReply>();
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].error.code, ErrorCode::kWeights);
  EXPECT_THAT(errors[0].error.message, HasSubstr("layer 2 expert"));
  EXPECT_EQ(client.ids(2).size(), 3u);
}

TEST_F(ComputeServiceTest, WeightServicesRestartUnderAGeneration) {
  create();
  TestClient client(*services_);
  client.send(request(1, 8));
  client.send(request(2, 8));
  bool restart = false;
  bool restarted = false;
  client.on_message = [&](const ipc::Message& message) {
    const auto* token = std::get_if<ipc::Token>(&message);
    if (token != nullptr && token->request == 2 && token->index == 2) restart = true;
  };
  serve_until([&] {
    if (restart && !std::exchange(restarted, true)) services_->start(kSmallest);
    return client.all<ipc::Finished>().size() == 2;
  });
  EXPECT_TRUE(restarted);
  EXPECT_EQ(client.ids(2).size(), 8u);
  EXPECT_EQ(client.ids(1), client.ids(2));
}

TEST_F(ComputeServiceTest, StoppingEndsAGenerationAndAsksTheClientToComeBack) {
  create();
  TestClient client(*services_);
  client.send(request(1, 3000));
  serve_until([&] { return !client.all<ipc::Token>().empty(); });
  ASSERT_TRUE(
      k3::test::run_until(services_->loop, [&] { return !client.all<ipc::ErrorReply>().empty(); }));
  EXPECT_EQ(client.all<ipc::ErrorReply>()[0].error.code, ErrorCode::kUnavailable);
  EXPECT_LT(client.ids(1).size(), 3000u);
  EXPECT_TRUE(client.all<ipc::Finished>().empty());
}

TEST_F(ComputeServiceTest, UnknownInstructionSetIsRefused) {
  ComputeService::Options options;
  options.run_dir = services_->run_dir();
  options.isa = "none";
  const auto made = ComputeService::create(services_->loop, options);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUsage);
  EXPECT_THAT(made.error().message, HasSubstr("reference"));
}

class UsableCoresTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((temp_.path() / path).parent_path());
    std::ofstream(temp_.path() / path) << text;
  }
  int cores() const { return usable_cores(temp_.path()); }

  k3::test::TempDir temp_;
};

// C32
TEST_F(UsableCoresTest, QuotaOfTheControlGroupLimitsThem) {
  write("sys/fs/cgroup/cpu.max", "max 100000\n");
  const int unlimited = cores();
  EXPECT_GE(unlimited, 1);
  write("sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores(), 1);
  write("sys/fs/cgroup/cpu.max", "100000000 100000\n");
  EXPECT_EQ(cores(), unlimited);
}

TEST_F(UsableCoresTest, SiblingsOfOneCoreCountOnce) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  EXPECT_EQ(cores(), CPU_COUNT(&allowed)) << "without a topology every CPU is a core";
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    const std::string folder = "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
    if (CPU_ISSET(cpu, &allowed)) write(folder + "thread_siblings_list", "0-1023\n");
  }
  EXPECT_EQ(cores(), 1);
}

TEST_F(UsableCoresTest, AsManyThreadsAsCoresAreBoundToOneEach) {
  cpu_set_t allowed;
  ASSERT_EQ(::sched_getaffinity(0, sizeof(allowed), &allowed), 0);
  const int threads = CPU_COUNT(&allowed);
  EXPECT_FALSE(bind_threads(threads + 1, temp_.path()));
  ASSERT_TRUE(bind_threads(threads, temp_.path()));
  cpu_set_t used;
  CPU_ZERO(&used);
#pragma omp parallel for schedule(static, 1) num_threads(threads) ordered
  for (int i = 0; i < threads; ++i) {
    cpu_set_t own;
    ::sched_getaffinity(0, sizeof(own), &own);
    ::sched_setaffinity(0, sizeof(allowed), &allowed);
#pragma omp ordered
    {
      EXPECT_EQ(CPU_COUNT(&own), 1);
      CPU_OR(&used, &used, &own);
    }
  }
  EXPECT_EQ(CPU_COUNT(&used), threads);
}

}  // namespace
}  // namespace k3::compute::test
