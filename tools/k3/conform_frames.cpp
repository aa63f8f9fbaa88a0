// E9 and E10: frames that are no messages, and messages that are not for this service.
#include <cstring>
#include <utility>

#include "tools/k3/conform_scenarios.h"

namespace k3::cli {
namespace {

using Frame = std::vector<std::byte>;

// Where the tag of an Envelope's union lies in a frame, 2 bytes (proto/envelope.capnp).
constexpr std::size_t kUnionTagAt = 20;
constexpr std::uint16_t kUnknownTag = 60000;

struct BadFrame {
  const char* what;
  std::vector<Frame> frames;
};

std::vector<BadFrame> bad_frames(const Frame& good) {
  Frame half(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(good.size() / 16 * 8));
  Frame longer = good;
  longer.resize(good.size() + 8);
  Frame segments(good);
  std::memset(segments.data(), 0xff, 4);  // the number of segments less one
  Frame pointer(good);
  std::memset(pointer.data() + 8, 0x7f, 8);  // the root
  return {{"an empty frame", {Frame{}}},
          {"three bytes", {Frame(3)}},
          {"a frame cut in half", {std::move(half)}},
          {"a frame without its last byte", {Frame(good.begin(), good.end() - 1)}},
          {"eight bytes after the message", {std::move(longer)}},
          {"a segment table of 2^32 entries", {std::move(segments)}},
          {"a root pointer out of bounds", {std::move(pointer)}},
          {"64 bytes of 0xa5", {Frame(64, std::byte{0xa5})}},
          {"a message of two frames", {good, good}}};
}

}  // namespace

Status check_malformed_frames(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto bystander, ConformClient::connect(setup));
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  const ExpertNumber any = expert_number(setup.truth, 0);
  K3_ASSIGN(const Frame good, client->peer().next_frame(ipc::Fetch{1, any.layer, {any.expert}, 0}));
  for (const BadFrame& bad : bad_frames(good)) {
    K3_TRY(client->peer().send_frames(bad.frames));
    K3_ASSIGN(const std::optional<Error> error, client->unasked_error());
    setup.findings.expect(
        Clause::kMalformed, error && error->code == ErrorCode::kFailed,
        "{}: {}, expected error 1 in reply to 0", bad.what,
        error ? fmt::format("error {} \"{}\"", static_cast<int>(error->code), error->message)
              : "no error");
    K3_TRY(client->fence());
    K3_TRY(bystander->fence());
  }
  return {};
}

Status check_unserved_messages(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_ASSIGN(auto answer, client->ask(ipc::DescribeTrunk{}));
  setup.findings.expect(Clause::kUnserved, is_error(answer, ErrorCode::kUsage),
                        "describeTrunk: {}, expected error 2", describe(answer));
  K3_ASSIGN(Frame unknown, client->peer().next_frame(ipc::DescribeTrunk{}));
  std::memcpy(unknown.data() + kUnionTagAt, &kUnknownTag, sizeof(kUnknownTag));
  K3_TRY(client->peer().send_frame(unknown));
  client->peer().skip_sequence();  // it counts
  K3_ASSIGN(answer, client->peer().receive());
  setup.findings.expect(Clause::kUnserved, is_error(answer, ErrorCode::kFailed),
                        "a message of a newer version: {}, expected error 1", describe(answer));
  return client->fence();
}

}  // namespace k3::cli
