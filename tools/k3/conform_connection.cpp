// E1 to E8: files, lifelines, handshake, versions, sequence numbers.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <variant>

#include "common/base/file.h"
#include "common/ipc/codec.h"
#include "tools/k3/conform_scenarios.h"

namespace k3::cli {
namespace {

// Where an Envelope without lists before it has its version, in bytes of the frame: segment table
// and root pointer come first (proto/envelope.capnp).
constexpr std::size_t kMajorAt = 16;
constexpr std::size_t kMinorAt = 18;

constexpr std::size_t kLockFileLimit = 64;

void expect_mode(Findings& findings, const std::filesystem::path& path, unsigned mode) {
  struct stat info {};
  const bool there = ::stat(path.c_str(), &info) == 0;
  findings.expect(Clause::kFiles, there && (info.st_mode & 07777) == mode,
                  "{}: {}, expected mode {:04o}", path.string(),
                  there ? fmt::format("mode {:04o}", info.st_mode & 07777) : std::strerror(errno),
                  mode);
}

// The process id in the lock file; 0 when there is none.
std::uint32_t lock_holder(const ipc::Endpoint& endpoint) {
  const Result<std::string> text = read_text_file(endpoint.lock_path, kLockFileLimit);
  std::uint32_t pid = 0;
  if (text) std::from_chars(text->data(), text->data() + text->size(), pid);
  return pid;
}

// Sends `message` on a connection that has not been greeted; its answer.
Result<std::optional<ipc::Envelope>> ask_raw(ConformPeer& peer, const ipc::Message& message) {
  K3_TRY(peer.send(message));
  return peer.receive();
}

bool is_welcome(const std::optional<ipc::Envelope>& answer) {
  return answer && std::holds_alternative<ipc::Welcome>(answer->body);
}

// Whether `answer` is an error of code 6 whose text holds both words.
bool names_both(const std::optional<ipc::Envelope>& answer, const std::string& one,
                const std::string& other) {
  if (!is_error(answer, ErrorCode::kIncompatible)) return false;
  const std::string& text = std::get<ipc::ErrorReply>(answer->body).error.message;
  return text.find(one) != std::string::npos && text.find(other) != std::string::npos;
}

}  // namespace

Status check_files(const ConformSetup& setup, const ConformScale&) {
  const ipc::Endpoint& endpoint = setup.endpoint;
  expect_mode(setup.findings, std::filesystem::absolute(endpoint.lock_path).parent_path(), 0700);
  expect_mode(setup.findings, endpoint.zmq_path, 0600);
  expect_mode(setup.findings, endpoint.lifeline_path, 0600);
  expect_mode(setup.findings, endpoint.lock_path, 0600);
  const UniqueFd lock(::open(endpoint.lock_path.c_str(), O_RDONLY | O_CLOEXEC));
  const bool taken = lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0;
  setup.findings.expect(Clause::kFiles, taken, "{} is not locked by the service",
                        endpoint.lock_path.string());
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  const std::uint32_t holder = lock_holder(endpoint);
  setup.findings.expect(Clause::kWelcome, client->welcome().pid == holder,
                        "Welcome of process {}, the lock file names {}", client->welcome().pid,
                        holder);
  setup.findings.expect(Clause::kWelcome, !client->welcome().service.empty(),
                        "Welcome names no service");
  return {};
}

Status check_connection_ids(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto owner, ConformClient::connect(setup));
  const std::filesystem::path& path = setup.endpoint.lifeline_path;
  const ipc::ConnectionId& taken = owner->peer().id();
  const std::vector<std::byte> shorter(15, std::byte{1});
  const std::vector<std::byte> longer(17, std::byte{1});
  const std::vector<std::byte> reserved(16, std::byte{0});
  for (const auto& [packet, what] :
       std::initializer_list<std::pair<std::span<const std::byte>, const char*>>{
           {taken, "an id in use"},
           {shorter, "15 bytes"},
           {longer, "17 bytes"},
           {reserved, "an id of zeros"}}) {
    K3_ASSIGN(const UniqueFd lifeline, lifeline_saying(path, packet));
    setup.findings.expect(Clause::kConnectionId, ends_within(lifeline, setup.limit),
                          "a lifeline that begins with {} stays open", what);
  }
  K3_TRY(owner->fence());
  K3_ASSIGN(const auto talker, ConformClient::connect(setup));
  talker->peer().talk_on_lifeline();
  setup.findings.expect(Clause::kConnectionId, talker->peer().hung_up(),
                        "a second packet on the lifeline does not end it");
  return owner->fence();
}

Status check_greeting(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(ConformPeer peer, ConformPeer::open(setup.endpoint, setup.limit, setup.findings));
  K3_ASSIGN(auto answer, ask_raw(peer, ipc::DescribeExperts{}));
  setup.findings.expect(Clause::kGreeting, is_error(answer, ErrorCode::kUsage),
                        "describeExperts before Hello: {}, expected error 2", describe(answer));
  K3_ASSIGN(answer, ask_raw(peer, ipc::Hello{"conform", ""}));
  setup.findings.expect(Clause::kGreeting, is_welcome(answer),
                        "Hello after it: {}, expected Welcome", describe(answer));
  K3_ASSIGN(ConformPeer stranger, ConformPeer::open(setup.endpoint, setup.limit, setup.findings,
                                                    ConformPeer::Lifeline::kNone));
  K3_ASSIGN(answer, ask_raw(stranger, ipc::Hello{"conform", ""}));
  setup.findings.expect(Clause::kGreeting, is_error(answer, ErrorCode::kUnavailable),
                        "Hello without a lifeline: {}, expected error 100", describe(answer));
  return {};
}

Status check_fingerprint(const ConformSetup& setup, const ConformScale&) {
  const std::string& ours = setup.truth.checkpoint().fingerprint();
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  setup.findings.expect(Clause::kFingerprint, client->welcome().fingerprint == ours,
                        "Welcome has the fingerprint \"{}\", the model \"{}\"",
                        client->welcome().fingerprint, ours);
  const std::string other(ours.size(), ours.front() == '0' ? '1' : '0');
  K3_ASSIGN(ConformPeer wrong, ConformPeer::open(setup.endpoint, setup.limit, setup.findings));
  K3_ASSIGN(auto answer, ask_raw(wrong, ipc::Hello{"conform", other}));
  setup.findings.expect(Clause::kFingerprint, names_both(answer, ours, other),
                        "Hello for model {}: {}, expected error 6 that names both", other,
                        describe(answer));
  K3_ASSIGN(ConformPeer any, ConformPeer::open(setup.endpoint, setup.limit, setup.findings));
  K3_ASSIGN(answer, ask_raw(any, ipc::Hello{"conform", ""}));
  setup.findings.expect(Clause::kFingerprint, is_welcome(answer),
                        "Hello for any model: {}, expected Welcome", describe(answer));
  return {};
}

Status check_version(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(ConformPeer peer, ConformPeer::open(setup.endpoint, setup.limit, setup.findings));
  K3_ASSIGN(const std::vector<std::byte> good, peer.next_frame(ipc::Hello{"conform", ""}));
  std::vector<std::byte> other_major = good;
  other_major[kMajorAt] = std::byte{ipc::kProtocolMajor + 1};
  K3_TRY(peer.send_frame(other_major));
  K3_ASSIGN(auto answer, peer.receive());
  setup.findings.expect(Clause::kVersion,
                        names_both(answer, fmt::format("{}.", ipc::kProtocolMajor + 1),
                                   fmt::format("{}.", ipc::kProtocolMajor)),
                        "Hello of version {}: {}, expected error 6 that names both versions",
                        ipc::kProtocolMajor + 1, describe(answer));
  std::vector<std::byte> newer_minor = good;
  newer_minor[kMinorAt] = std::byte{0xff};
  K3_TRY(peer.send_frame(newer_minor));
  K3_ASSIGN(answer, peer.receive());
  setup.findings.expect(Clause::kVersion, is_welcome(answer),
                        "Hello of a newer minor version: {}, expected Welcome", describe(answer));
  return {};
}

Status check_sequence(const ConformSetup& setup, const ConformScale&) {
  K3_ASSIGN(const auto client, ConformClient::connect(setup));
  K3_TRY(client->fence());
  client->peer().skip_sequence();
  K3_TRY(client->peer().send(ipc::DescribeExperts{}));
  setup.findings.expect(Clause::kSequence, client->peer().hung_up(),
                        "a gap in the client's sequence does not end the lifeline");
  return {};
}

}  // namespace k3::cli
