// E26: a client that dies with leases.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "tools/k3/conform_scenarios.h"

namespace k3::cli {
namespace {

constexpr std::chrono::milliseconds kPollPeriod{20};

// A process that leases every slot it can, and says so with one byte.
class DoomedClient {
 public:
  // The calling process must have one thread: the child goes on with what it was doing.
  static Result<DoomedClient> start(const ConformSetup& setup, const ConformScale& scale) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
      return fail(ErrorCode::kFailed, "pipe2: {}", std::strerror(errno));
    }
    DoomedClient client;
    client.reader_ = UniqueFd(ends[0]);
    const UniqueFd writer(ends[1]);
    client.pid_ = ::fork();
    if (client.pid_ < 0) return fail(ErrorCode::kFailed, "fork: {}", std::strerror(errno));
    if (client.pid_ == 0) live(setup, scale, writer.get());
    return client;
  }
  DoomedClient(DoomedClient&& other) noexcept
      : reader_(std::move(other.reader_)), pid_(std::exchange(other.pid_, 0)) {}
  DoomedClient& operator=(DoomedClient&&) = delete;
  ~DoomedClient() { kill(); }

  // Whether it holds its leases within `limit`.
  bool ready(std::chrono::milliseconds limit) const {
    pollfd item{reader_.get(), POLLIN, 0};
    char byte = 0;
    return ::poll(&item, 1, static_cast<int>(limit.count())) > 0 &&
           ::read(reader_.get(), &byte, 1) == 1;
  }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
  }

 private:
  DoomedClient() = default;

  [[noreturn]] static void live(const ConformSetup& setup, const ConformScale& scale, int writer) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto client = ConformClient::connect(setup);
    if (client && lease_every_slot(**client, setup, scale)) {
      if (::write(writer, "x", 1) == 1) ::pause();
    }
    ::_exit(1);
  }

  UniqueFd reader_;
  pid_t pid_ = 0;
};

Result<std::uint64_t> leases_now(const ConformSetup& setup) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_ASSIGN(auto counters, client->counters());
  return counters["leases_now"];
}

}  // namespace

Status check_death(const ConformSetup& setup, const ConformScale& scale) {
  // What can be leased without waiting and within the budget.
  ConformScale reach = scale;
  reach.slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(
      {scale.slots, setup.truth.total_experts(), scale.budget_bytes / setup.truth.expert_bytes()}));
  K3_ASSIGN(const std::uint64_t before, leases_now(setup));
  K3_ASSIGN(DoomedClient doomed, DoomedClient::start(setup, reach));
  // Each of its answers has the limit, as in this process.
  if (!doomed.ready(setup.limit * 2)) {
    return fail(ErrorCode::kFailed, "a client in a process of its own gets no leases");
  }
  K3_ASSIGN(const auto heir, ConformClient::connect(setup));
  const std::uint64_t total = setup.truth.total_experts();
  const ExpertNumber wanted = expert_number(setup.truth, reach.slots % total);
  K3_ASSIGN(const std::uint64_t batch, heir->fetch(wanted.layer, {wanted.expert}));
  K3_TRY(heir->fence());
  doomed.kill();
  K3_TRY(heir->wait(batch, Clause::kDeath));
  K3_TRY(heir->release_all());
  // The service may see the death after it has served a fetch that did not need the slots.
  const auto deadline = std::chrono::steady_clock::now() + setup.limit;
  K3_ASSIGN(auto counters, heir->counters());
  while (counters["leases_now"] != before && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kPollPeriod);
    K3_ASSIGN(counters, heir->counters());
  }
  const std::uint64_t after = counters["leases_now"];
  setup.findings.expect(Clause::kDeath, after == before,
                        "{} leases after the death of a client, {} before it came", after, before);
  return {};
}

}  // namespace k3::cli
