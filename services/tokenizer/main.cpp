// k3-tokenizer: turns text into token ids and back (README.md).
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "common/base/service_main.h"
#include "common/base/unique_fd.h"
#include "common/ipc/event_loop.h"
#include "services/tokenizer/tokenizer_service.h"

namespace {

using k3::tokenizer::TokenizerService;

k3::Status serve(const TokenizerService::Options& options) {
  K3_ASSIGN(const int stop_fd, k3::stop_signal_fd());
  const k3::UniqueFd stop(stop_fd);
  k3::ipc::EventLoop loop;
  K3_ASSIGN(const std::unique_ptr<TokenizerService> service,
            TokenizerService::create(loop, options));
  loop.watch(stop.get(), [&loop] { loop.stop(); });
  loop.run();
  spdlog::info("stopping");
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  TokenizerService::Options options;
  CLI::App app("Turns text into token ids and back with the checkpoint's vocabulary.",
               "k3-tokenizer");
  app.add_option("--run", options.run_dir, "run directory of the pipeline's endpoints")->required();
  app.add_option("--model", options.model,
                 "checkpoint directory; without a tiktoken.model there, text is refused")
      ->required();
  return k3::service_main(app, argc, argv, "k3-tokenizer", [&] { return serve(options); });
}
