// Where the endpoints of a running pipeline live: one private directory, three files a service.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/result.h"
#include "common/base/unique_fd.h"

namespace k3::ipc {

// The files of one service inside a run directory: SERVICE.zmq (ZeroMQ ipc endpoint),
// SERVICE.life (lifeline socket), SERVICE.lock (flock held by the running process).
struct Endpoint {
  std::filesystem::path zmq_path;
  std::filesystem::path lifeline_path;
  std::filesystem::path lock_path;

  std::string zmq_address() const { return "ipc://" + zmq_path.string(); }
};

// `service` is tokenizer, trunk, experts or compute. Refuses (kUsage) a directory whose socket
// paths would exceed the 107 bytes a Unix socket address holds, naming path and length.
Result<Endpoint> endpoint_in(const std::filesystem::path& run_dir, std::string_view service);

// Creates `run_dir` with mode 0700 (its parent must exist), or checks that an existing one belongs
// to this user and is writable by nobody else.
Status prepare_run_dir(const std::filesystem::path& run_dir);

// Takes the endpoint's lock for as long as the descriptor lives and writes this process's id into
// the file. kFailed naming the holder's process id when another one has it.
Result<UniqueFd> lock_endpoint(const Endpoint& endpoint);

// Whether `lock`, of lock_endpoint(), still is the endpoint's lock file: not after the run directory
// was removed, and the files there may be another process's.
bool holds_endpoint(const UniqueFd& lock, const Endpoint& endpoint);

}  // namespace k3::ipc
