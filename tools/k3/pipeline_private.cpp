#include "tools/k3/pipeline_private.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "tools/k3/terminal.h"

namespace k3::cli {
namespace {

constexpr const char* kScriptName = "k3-pipeline";

// Starts `words` with stdout sent to stderr and returns its exit code (128 + signal when killed).
// The child gets back the signals this process has blocked or ignores, and a process group of its
// own, so that a Ctrl-C at the terminal reaches only this process.
Result<int> run_program(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t ignored;
  sigemptyset(&ignored);
  sigaddset(&ignored, SIGPIPE);
  posix_spawnattr_setsigdefault(&attributes, &ignored);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);

  pid_t child = 0;
  const int error =
      posix_spawn(&child, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) {
    return fail(ErrorCode::kFailed, "{}: cannot be started: {}", words[0], std::strerror(error));
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) {
      return fail(ErrorCode::kFailed, "{}: waitpid: {}", words[0], std::strerror(errno));
    }
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

std::filesystem::path binary_dir() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
}

Result<std::filesystem::path> make_run_dir() {
  std::vector<std::string> bases;
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR")) bases.emplace_back(runtime);
  bases.emplace_back("/tmp");
  for (const std::string& base : bases) {
    std::string name = base + "/k3-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) return std::filesystem::path(name);
  }
  return fail(ErrorCode::kFailed, "no run directory can be made in {}: {}",
              fmt::join(bases, " or "), std::strerror(errno));
}

void remove_tree(const std::filesystem::path& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace

Result<std::filesystem::path> find_supervisor_script() {
  std::vector<std::filesystem::path> places;
  if (const char* chosen = std::getenv("K3_LAUNCH_DIR")) {
    places = {std::filesystem::absolute(chosen)};
  } else {
    const std::filesystem::path binaries = binary_dir();
    places = {binaries / "../../../launch", binaries / "../share/k3/launch"};
  }
  std::vector<std::string> tried;
  for (const std::filesystem::path& place : places) {
    const std::filesystem::path script = (place / kScriptName).lexically_normal();
    std::error_code ignored;
    if (std::filesystem::exists(script, ignored)) return script;
    tried.push_back(script.string());
  }
  return fail(ErrorCode::kUsage, "no supervisor script at {}; set K3_LAUNCH_DIR",
              fmt::join(tried, " or "));
}

Result<PrivatePipeline> PrivatePipeline::start(const std::filesystem::path& script,
                                               const PipelineSettings& settings) {
  K3_ASSIGN(std::filesystem::path run_dir, make_run_dir());
  PrivatePipeline pipeline(script, run_dir);
  std::vector<std::string> words = {script.string(),  "start",    "--run",
                                    run_dir.string(), "--parent", std::to_string(getpid())};
  const std::filesystem::path binaries = binary_dir();
  std::error_code ignored;
  if (std::filesystem::exists(binaries / "k3-compute", ignored)) {
    words.insert(words.end(), {"--bin", binaries.string()});
  }
  for (const auto& [name, value] : settings) {
    words.insert(words.end(), {"--set", fmt::format("{}={}", name, value)});
  }
  K3_ASSIGN(const int code, run_program(std::move(words)));
  if (code != 0) {
    const ErrorCode reason = code == 2 ? ErrorCode::kUsage : ErrorCode::kFailed;
    return fail(reason, "{} start ended with exit code {}", script.string(), code);
  }
  return pipeline;
}

PrivatePipeline::PrivatePipeline(PrivatePipeline&& other) noexcept
    : script_(std::move(other.script_)), run_dir_(std::exchange(other.run_dir_, {})) {}

PrivatePipeline::~PrivatePipeline() {
  if (const Status stopped = stop(); !stopped) {
    tell(fmt::format("k3: {}\n", stopped.error().message));
  }
}

Status PrivatePipeline::stop() {
  if (run_dir_.empty()) return {};
  const std::filesystem::path run_dir = std::exchange(run_dir_, {});
  std::error_code ignored;
  Result<int> code = 0;
  // The supervisor removes the directory of its own accord when it has been stopped already.
  if (std::filesystem::exists(run_dir, ignored)) {
    code = run_program({script_.string(), "stop", "--run", run_dir.string()});
  }
  remove_tree(run_dir);
  K3_TRY(code);
  if (*code == 0) return {};
  return fail(ErrorCode::kFailed, "{} stop --run {} ended with exit code {}", script_.string(),
              run_dir.string(), *code);
}

}  // namespace k3::cli
