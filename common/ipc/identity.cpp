#include "common/ipc/identity.h"

#include <sys/random.h>
#include <sys/types.h>

#include <chrono>
#include <span>

#include "common/base/check.h"

namespace k3::ipc {
namespace {

// Never short and never interrupted for so few bytes once the system has booted (getrandom(2)).
void fill_random(std::span<std::byte> out) {
  const ssize_t got = ::getrandom(out.data(), out.size(), 0);
  K3_CHECK(got == static_cast<ssize_t>(out.size()), "getrandom fell short");
}

std::uint64_t random_nonzero() {
  std::uint64_t value = 0;
  while (value == 0) fill_random(std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

}  // namespace

ConnectionId new_connection_id() {
  ConnectionId id{};
  while (id[0] == std::byte{0}) fill_random(id);
  return id;
}

std::uint64_t process_incarnation() {
  static const std::uint64_t incarnation = random_nonzero();
  return incarnation;
}

std::uint64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

}  // namespace k3::ipc
